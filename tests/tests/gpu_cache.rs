//! The folder of compiled kernels on the first OpenCL device: whatever lies there, a graph loads, gives the same and leaves
//! files behind that are whole.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use frit_gpu::device::Device;
use frit_gpu::drivers::opencl::OpenCl;
use frit_ir::{DType, ScalarOp, Tensor};
use frit_ops::build::Builder;
use frit_tests::{check, gpu};

/// Runs `-x` and `exp x` by a device with this folder; the files of the folder by name.
fn run(folder: &Path) -> (check::Outputs, Vec<(PathBuf, Vec<u8>)>) {
    let mut b = Builder::new("two");
    let x = b.input("x", DType::F32, [3i64]).unwrap();
    let (a, e) = (b.unary(ScalarOp::Neg, x).unwrap(), b.unary(ScalarOp::Exp, x).unwrap());
    b.output("a", a).unwrap();
    b.output("e", e).unwrap();
    let (registry, graph) = (frit_ops::registry(), b.finish());
    let device = Device::new(OpenCl::open(0).unwrap(), Some(folder.to_owned()));
    let values =
        HashMap::from([("x".to_owned(), Tensor::from_f64(DType::F32, &[3], &[0.0, 1.0, -2.0]).unwrap())]);
    let out = gpu::run(&graph, &registry, &device, &check::options(), &[], &values).unwrap();
    let entries = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path());
    let mut files: Vec<_> = entries.map(|p| (p.clone(), std::fs::read(&p).unwrap())).collect();
    files.sort();
    (out, files)
}

#[test]
fn damaged_files_are_built_again_and_replaced() {
    let folder = std::env::temp_dir().join(format!("frit-gpu-cache-{}", std::process::id()));
    let (want, files) = run(&folder);
    assert_eq!(files.len(), 2, "a file for each kernel");
    let (path, whole) = &files[0];
    let damages: [(&str, Vec<u8>); 6] = [
        ("cut by a byte", whole[..whole.len() - 1].to_vec()),
        ("cut in half", whole[..whole.len() / 2].to_vec()),
        ("empty", vec![]),
        ("zeros", vec![0; whole.len()]),
        ("longer", [whole.as_slice(), b"x"].concat()),
        ("of another kernel", files[1].1.clone()),
    ];
    for (what, bytes) in damages {
        std::fs::write(path, &bytes).unwrap();
        let (got, now) = run(&folder);
        assert_eq!(got, want, "{what}");
        assert_eq!(now.len(), 2, "{what}");
        assert_ne!(now[0].1, bytes, "{what}: it was not replaced");
        assert_eq!(run(&folder).1, now, "{what}: what replaced it is taken");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
