//! OpenCL objects that release themselves.

use std::ffi::{CStr, CString};
use std::ptr::null_mut;

use cl3::command_queue::{CL_QUEUE_PROFILING_ENABLE, release_command_queue};
use cl3::context::{CL_CONTEXT_PLATFORM, create_context, release_context};
use cl3::event::{
    CL_PROFILING_COMMAND_END, CL_PROFILING_COMMAND_START, get_event_profiling_data, release_event,
    wait_for_events,
};
use cl3::kernel::{create_kernel, release_kernel};
use cl3::memory::{CL_MEM_READ_WRITE, create_buffer, release_mem_object};
use cl3::program::{
    CL_PROGRAM_BINARIES, CL_PROGRAM_BUILD_LOG, build_program, create_program_with_binary,
    create_program_with_source, get_program_build_data, get_program_info, release_program,
};
use cl3::types::{
    cl_command_queue, cl_context, cl_context_properties, cl_device_id, cl_event, cl_int, cl_kernel, cl_mem,
    cl_platform_id, cl_program,
};

use crate::drivers::common::object;

/// The language version, and no relaxed arithmetic.
const OPTIONS: &str = "-cl-std=CL1.2";

/// `/` and `sqrt` correctly rounded, for devices that have them so.
const ROUNDED: &str = "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt";

object!(
    /// A context of one device.
    Context cl_context, release_context
);
object!(
    /// An in-order queue that notes when commands ran.
    Queue cl_command_queue, release_command_queue
);
object!(
    /// A buffer.
    Memory cl_mem, release_mem_object
);
object!(
    /// A built program.
    Program cl_program, release_program
);
object!(
    /// A kernel.
    Kernel cl_kernel, release_kernel
);
object!(
    /// An event.
    Event cl_event, release_event
);

impl Context {
    pub fn new(platform: cl_platform_id, device: cl_device_id) -> Result<Context, cl_int> {
        let properties = [CL_CONTEXT_PLATFORM, platform as cl_context_properties, 0];
        create_context(&[device], properties.as_ptr(), None, null_mut()).map(Context)
    }
}

impl Queue {
    #[allow(deprecated, reason = "the newer call needs OpenCL 2.0")]
    pub fn new(context: &Context, device: cl_device_id) -> Result<Queue, cl_int> {
        // SAFETY: the device is the context's.
        unsafe { cl3::command_queue::create_command_queue(context.0, device, CL_QUEUE_PROFILING_ENABLE) }
            .map(Queue)
    }
}

impl Memory {
    pub fn new(context: &Context, bytes: usize) -> Result<Memory, cl_int> {
        // SAFETY: no host pointer, so nothing but the size matters.
        unsafe { create_buffer(context.0, CL_MEM_READ_WRITE, bytes, null_mut()) }.map(Memory)
    }
}

impl Program {
    /// Builds `text`; the error is the compiler's log.
    pub fn from_source(context: &Context, device: cl_device_id, text: &str) -> Result<Program, String> {
        let code = |c| cl3::error_codes::error_text(c).to_owned();
        let p = create_program_with_source(context.0, &[text]).map(Program).map_err(code)?;
        p.build(device).map_err(|c| {
            let log = get_program_build_data(p.0, device, CL_PROGRAM_BUILD_LOG).unwrap_or_default();
            format!("{}: {}", code(c), String::from_utf8_lossy(&log).trim_matches(['\0', '\n', ' ']))
        })?;
        Ok(p)
    }

    pub fn from_binary(context: &Context, device: cl_device_id, binary: &[u8]) -> Result<Program, cl_int> {
        // SAFETY: the device is the context's. A binary that is not the device's own is refused.
        let p = unsafe { create_program_with_binary(context.0, &[device], &[binary]) }.map(Program)?;
        p.build(device)?;
        Ok(p)
    }

    fn build(&self, device: cl_device_id) -> Result<(), cl_int> {
        let options = if super::device::rounds_division(device) { ROUNDED } else { OPTIONS };
        let options = CString::new(options).unwrap_or_default();
        build_program(self.0, &[device], &options, None, null_mut())
    }

    pub fn binary(&self) -> Option<Vec<u8>> {
        let all = get_program_info(self.0, CL_PROGRAM_BINARIES).ok()?;
        Vec::<Vec<u8>>::from(all).into_iter().next().filter(|b| !b.is_empty())
    }
}

impl Kernel {
    pub fn new(program: &Program, entry: &CStr) -> Result<Kernel, cl_int> {
        create_kernel(program.0, entry).map(Kernel)
    }
}

impl Event {
    /// Waits for the command; the error is that of the command.
    pub fn wait(&self) -> Result<(), cl_int> {
        wait_for_events(&[self.0])
    }

    /// When the command began and ended, in nanoseconds of the device's clock; 0 where it does not tell.
    pub fn times(&self) -> (u64, u64) {
        let at = |what| {
            let mut bytes = get_event_profiling_data(self.0, what).unwrap_or_default();
            bytes.resize(8, 0);
            u64::from_le_bytes(bytes.try_into().unwrap_or_default())
        };
        (at(CL_PROFILING_COMMAND_START), at(CL_PROFILING_COMMAND_END))
    }
}
