//! Kernel text to machine code by NVRTC, and the form in which machine code is kept on disk.

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult as Code};

use crate::error::GpuError;

/// The oldest NVRTC whose options and results are those used here.
const OLDEST: (i32, i32) = (12, 0);

const HINT: &str = "install the CUDA toolkit, or `pip install nvidia-cuda-nvrtc` and name the folder of its library to the \
                    system's loader";

/// Arithmetic as it is written: nothing contracted, subnormals kept, `/` and `sqrt` correctly rounded.
const OPTIONS: &[&str] = &[
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--std=c++17",
    "--disable-warnings",
];

/// NVRTC as it was found.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// Major and minor version.
    pub version: (i32, i32),
    /// Capabilities it builds for, in its order.
    archs: Vec<i32>,
}

impl Compiler {
    /// Finds NVRTC.
    ///
    /// # Errors
    /// [`GpuError::Library`] where it is not, [`GpuError::TooOld`] where it is older than 12.0.
    pub fn new() -> Result<Compiler, GpuError> {
        static PRESENT: OnceLock<bool> = OnceLock::new();
        // SAFETY: opens the library and closes it again.
        if !*PRESENT.get_or_init(|| unsafe { sys::is_culib_present() }) {
            return Err(GpuError::Library { library: "libnvrtc", hint: HINT.into() });
        }
        let (mut version, mut n) = ((0, 0), 0);
        // SAFETY: writes the two numbers.
        let found = unsafe { sys::nvrtcVersion(&raw mut version.0, &raw mut version.1) };
        if found != Code::NVRTC_SUCCESS || version < OLDEST {
            let (have, want) = (format!("{}.{}", version.0, version.1), format!("{}.{}", OLDEST.0, OLDEST.1));
            return Err(GpuError::TooOld { api: "NVRTC", have, want, hint: HINT.into() });
        }
        // SAFETY: writes the number.
        let counted = unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut n) };
        let mut archs = vec![0; usize::try_from(n).unwrap_or(0)];
        if counted == Code::NVRTC_SUCCESS && !archs.is_empty() {
            // SAFETY: `archs` has as many places as the call before told.
            let _ = unsafe { sys::nvrtcGetSupportedArchs(archs.as_mut_ptr()) };
        }
        Ok(Compiler { version, archs })
    }

    /// What to build for on a device of this capability: `sm_…`, for Hopper with the instructions that only it has.
    ///
    /// # Errors
    /// [`GpuError::Library`] if this NVRTC builds for no such device.
    pub fn arch(&self, capability: u32) -> Result<String, GpuError> {
        let name = |arch| if arch == 90 && capability == 90 { "sm_90a".into() } else { format!("sm_{arch}") };
        best(&self.archs, capability).map(name).ok_or_else(|| {
            let (major, minor) = self.version;
            let hint = format!("version {major}.{minor} does not build for sm_{capability}; {HINT}");
            GpuError::Library { library: "a libnvrtc for the device", hint }
        })
    }

    /// Builds `text` to machine code.
    ///
    /// # Errors
    /// The compiler's log.
    pub fn build(&self, arch: &str, name: &str, text: &str) -> Result<Vec<u8>, String> {
        let program = Program::new(name, text)?;
        let arch = format!("--gpu-architecture={arch}");
        let options = OPTIONS.iter().copied().chain([arch.as_str()]).map(CString::new);
        let options: Vec<CString> = options.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        // SAFETY: `pointers` are that many strings, which live until the call returns.
        let code = unsafe { sys::nvrtcCompileProgram(program.0, pointers.len() as i32, pointers.as_ptr()) };
        if code != Code::NVRTC_SUCCESS {
            return Err(format!("{code:?}: {}", program.log()));
        }
        program.cubin().map_err(|code| format!("{code:?}"))
    }
}

/// The newest of `archs` whose machine code runs on a device of this capability: the same major version, no newer.
fn best(archs: &[i32], capability: u32) -> Option<i32> {
    let have = i32::try_from(capability).ok()?;
    archs.iter().copied().filter(|a| a / 10 == have / 10 && *a <= have).max()
}

struct Program(nvrtcProgram);

impl Program {
    fn new(name: &str, text: &str) -> Result<Program, String> {
        let text = CString::new(text).map_err(|e| e.to_string())?;
        let name = CString::new(format!("{name}.cu")).map_err(|e| e.to_string())?;
        let (mut p, none) = (std::ptr::null_mut(), std::ptr::null());
        // SAFETY: both strings live until the call returns, which copies them; there are no headers.
        let code = unsafe {
            sys::nvrtcCreateProgram(&raw mut p, text.as_ptr(), name.as_ptr(), 0, none, none.cast())
        };
        if code == Code::NVRTC_SUCCESS { Ok(Program(p)) } else { Err(format!("{code:?}")) }
    }

    /// Something whose size is asked for first.
    fn bytes(
        &self,
        size: unsafe fn(nvrtcProgram, *mut usize) -> Code,
        get: unsafe fn(nvrtcProgram, *mut c_char) -> Code,
    ) -> Result<Vec<u8>, Code> {
        let (mut n, ok) = (0usize, |code| if code == Code::NVRTC_SUCCESS { Ok(()) } else { Err(code) });
        // SAFETY: the program is this value's own.
        ok(unsafe { size(self.0, &raw mut n) })?;
        let mut bytes = vec![0u8; n];
        // SAFETY: `bytes` has the size that was told.
        ok(unsafe { get(self.0, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    fn log(&self) -> String {
        let bytes = self.bytes(sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_matches(['\0', '\n', ' ']).into()
    }

    fn cubin(&self) -> Result<Vec<u8>, Code> {
        self.bytes(sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program is this value's own. A failure leaks it, which nobody could mend.
        let _ = unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_built_for_the_newest_target_of_the_same_major_version() {
        let archs = [75, 80, 86, 89, 90, 100, 103, 120];
        let cases =
            [(90, Some(90)), (87, Some(86)), (88, Some(86)), (103, Some(103)), (101, Some(100)), (70, None)];
        for (capability, want) in cases {
            assert_eq!(best(&archs, capability), want, "{capability}");
        }
        assert_eq!(best(&[], 90), None);
    }
}
