//! Tables in README and docs that are made from the code: between `<!-- begin NAME -->` and `<!-- end NAME -->`.

use std::fmt::Write;
use std::process::Command;

use crate::root;

/// A table: name, the files that hold it, and what makes it.
type Table = (&'static str, &'static [&'static str], fn() -> Result<String, String>);

const TABLES: &[Table] = &[
    ("ops", &["docs/ops.md"], ops),
    ("models", &["README.md", "docs/status.md"], models),
    ("cli", &["docs/cli.md"], cli),
    ("chores", &["docs/status.md"], chores),
];

/// Rewrites the tables, or with `--check` fails if one differs.
pub fn run(args: &[String]) -> Result<(), String> {
    let check = args.iter().any(|a| a == "--check");
    let mut stale = Vec::new();
    for (name, files, make) in TABLES {
        let table = make()?;
        for file in *files {
            let path = root().join(file);
            let old = std::fs::read_to_string(&path).map_err(|e| format!("{file}: {e}"))?;
            let new =
                replace(&old, name, &table).ok_or_else(|| format!("{file}: no place for table `{name}`"))?;
            if new == old {
                continue;
            }
            if check {
                stale.push(format!("{file} ({name})"));
            } else {
                std::fs::write(&path, new).map_err(|e| format!("{file}: {e}"))?;
            }
        }
    }
    match stale.is_empty() {
        true => Ok(()),
        false => Err(format!("{} differ from the code; run `cargo xtask docs`", stale.join(", "))),
    }
}

fn replace(text: &str, name: &str, table: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"));
    let from = text.find(&begin)? + begin.len();
    let to = from + text[from..].find(&end)?;
    Some(format!("{}{}{}", &text[..from], table, &text[to..]))
}

fn ops() -> Result<String, String> {
    let target = frit_cpu::target::target(1);
    let mut t =
        String::from("| op | what it computes | kind | cases | CPU kernels |\n|---|---|---|---|---|\n");
    for op in frit_ops::registry().iter() {
        let kind = match (op.view.is_some(), op.expand.is_some(), !op.updates.is_empty()) {
            (true, ..) => "view",
            (_, true, _) => "fused",
            (.., true) => "state",
            _ => "core",
        };
        let rows: Vec<_> =
            target.rows.iter().filter(|r| r.op == op.name).map(|r| format!("`{}`", r.name)).collect();
        let cases = (op.cases)().len();
        let _ = writeln!(t, "| `{}` | {} | {kind} | {cases} | {} |", op.name, op.summary, rows.join(", "));
    }
    let names: Vec<_> = frit_ir::ScalarOp::all().map(|o| format!("`{}`", o.name())).collect();
    let _ = writeln!(t, "\nScalar ops of `expr`: {}.", names.join(", "));
    Ok(t)
}

fn models() -> Result<String, String> {
    let mut t = String::from("| architecture | form | for |\n|---|---|---|\n");
    for a in frit_models::arch::ARCHS {
        let what = if a.encoder().is_some() { "embeddings" } else { "text" };
        let _ = writeln!(t, "| `{}` | {} | {what} |", a.name, a.form.name());
    }
    Ok(t)
}

fn chores() -> Result<String, String> {
    let mut t = String::from("| command | what it does |\n|---|---|\n");
    for (name, what, _) in crate::CHORES {
        let _ = writeln!(t, "| `cargo xtask {name}` | {what} |");
    }
    Ok(t)
}

fn cli() -> Result<String, String> {
    let top = help("")?;
    // The commands stand in the first help as indented lines after `Commands:`.
    let listed = top.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let names = listed.filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help");
    let mut t = format!("## frit\n\n```text\n{top}\n```\n\n");
    for name in names {
        let _ = writeln!(t, "## frit {name}\n\n```text\n{}\n```\n", help(name)?);
    }
    Ok(t)
}

/// What `frit COMMAND --help` prints, without spaces at the ends of lines.
fn help(command: &str) -> Result<String, String> {
    let mut args = vec!["run", "--quiet", "-p", "frit-cli", "--"];
    args.extend((!command.is_empty()).then_some(command));
    args.push("--help");
    let out = Command::new("cargo").args(args).current_dir(root()).output();
    let out = out.map_err(|e| format!("cargo: {e}"))?;
    if !out.status.success() {
        return Err(format!("`frit {command} --help`: {}", String::from_utf8_lossy(&out.stderr)));
    }
    let text = String::from_utf8_lossy(&out.stdout);
    Ok(text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"))
}
