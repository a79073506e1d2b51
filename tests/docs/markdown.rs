//! As much of Markdown as these tests need: headings, links, blocks of code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A file of documentation.
pub(crate) struct Page {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// A block between three back ticks.
struct Block<'a> {
    /// What follows the back ticks: a language, then notes.
    info: &'a str,
    lines: Vec<&'a str>,
}

impl Page {
    pub(crate) fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap();
        Self { path, text }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.path.parent().unwrap()
    }

    /// Its path in the repository.
    pub(crate) fn name(&self) -> String {
        self.path.strip_prefix(super::root()).unwrap().display().to_string()
    }

    /// Lines outside of blocks, and the blocks.
    fn parts(&self) -> (Vec<&str>, Vec<Block<'_>>) {
        let (mut prose, mut blocks, mut open) = (Vec::new(), Vec::new(), None::<Block<'_>>);
        for line in self.text.lines() {
            match (line.trim_start().strip_prefix("```"), open.take()) {
                (Some(_), Some(block)) => blocks.push(block),
                (Some(info), None) => open = Some(Block { info, lines: Vec::new() }),
                (None, Some(mut block)) => {
                    block.lines.push(line);
                    open = Some(block);
                }
                (None, None) => prose.push(line),
            }
        }
        assert!(open.is_none(), "{}: a block does not end", self.name());
        (prose, blocks)
    }

    /// Targets of its links and pictures.
    pub(crate) fn links(&self) -> Vec<String> {
        let prose = self.parts().0.join("\n");
        let targets = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        targets.map(str::to_owned).collect()
    }

    /// What links may name after `#`, as forges make it of headings.
    pub(crate) fn anchors(&self) -> BTreeSet<String> {
        let mut anchors = BTreeSet::new();
        for line in self.parts().0 {
            let Some(title) = line.strip_prefix('#').map(|line| line.trim_start_matches('#')) else {
                continue;
            };
            let kept = title.trim().to_lowercase();
            let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
            let again = (1..).map(|n| format!("{slug}-{n}"));
            let free = std::iter::once(slug.clone()).chain(again).find(|slug| !anchors.contains(slug));
            anchors.extend(free);
        }
        anchors
    }

    /// All commands that are to be run.
    pub(crate) fn script(&self) -> String {
        let blocks = self.parts().1;
        let run = blocks.iter().filter(|block| block.info == "sh");
        run.flat_map(|block| &block.lines).map(|line| format!("{line}\n")).collect()
    }

    /// The arguments of each call of `program`, in blocks of commands and in code within lines.
    pub(crate) fn commands(&self, program: &str) -> Vec<Vec<String>> {
        let (prose, blocks) = self.parts();
        let shell = blocks.iter().filter(|block| block.info.split(' ').next() == Some("sh"));
        let mut code: Vec<String> = shell.map(|block| block.lines.join("\n").replace("\\\n", " ")).collect();
        code.extend(prose.join("\n").split('`').skip(1).step_by(2).map(|code| code.replace('\n', " ")));
        let lines = code.iter().flat_map(|code| code.lines());
        lines.flat_map(|line| calls(line, program)).collect()
    }
}

/// Arguments of the calls of `program` in a line of shell.
fn calls(line: &str, program: &str) -> Vec<Vec<String>> {
    let line = line.split(" #").next().unwrap();
    let simple = line.split(['|', ';', '&', '(', ')']);
    let words = simple.map(|command| command.split_whitespace().skip_while(|word| word.contains('=')));
    words
        .filter_map(|mut words| (words.next()? == program).then(|| words.map(str::to_owned).collect()))
        .collect()
}

/// Words of `text` that begin with `prefix` and go on; what is followed by `*` or ends in `_` names several.
pub(crate) fn words_like(text: &str, prefix: &str) -> BTreeSet<String> {
    let upper = prefix.starts_with(|c: char| c.is_ascii_uppercase());
    let letter = move |c: char| if upper { c.is_ascii_uppercase() } else { c.is_ascii_lowercase() };
    let part = move |c: char| letter(c) || c.is_ascii_digit() || c == '_';
    let starts = text.match_indices(prefix).filter(|(at, _)| !text[..*at].ends_with(part));
    let word = |(at, _): (usize, &str)| {
        let rest = &text[at..];
        let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
        let one = !rest[..end].ends_with('_') && !rest[end..].starts_with('*');
        one.then(|| rest[..end].to_owned())
    };
    starts.filter_map(word).collect()
}
