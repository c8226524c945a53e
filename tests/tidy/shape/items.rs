//! What a source file says: the items that it defines, what it imports, the paths that it names, its `impl` blocks.
//! Code for tests is left out.

use super::tokens::{Token, tokens};

/// A name in a module. A module is a list of names from the root of its crate.
pub type Path = Vec<String>;

/// An import: `use path as alias`, or `use path::*`.
#[derive(Debug)]
pub struct Import {
    pub module: Path,
    pub path: Path,
    /// None for `*`.
    pub alias: Option<String>,
    pub is_public: bool,
}

/// What one source file says.
#[derive(Default, Debug)]
pub struct Items {
    /// The modules that stand in this file, its own first.
    pub modules: Vec<Path>,
    /// The modules under `#[cfg(test)]` that stand in files of their own.
    pub test_modules: Vec<Path>,
    /// Items, each as its module and its name.
    pub defined: Vec<(Path, String)>,
    pub imports: Vec<Import>,
    /// Paths in code, each with the module that it stands in.
    pub named: Vec<(Path, Path)>,
    /// The types that have an `impl` block here, each with the module of that block.
    pub impls: Vec<(Path, Path)>,
    /// The names of macros that this file defines or calls.
    pub macros: Vec<String>,
    pub macro_calls: Vec<String>,
}

/// Reads the text of the file of a module.
pub fn items(text: &str, module: &[String]) -> Items {
    let mut items = Items { modules: vec![module.to_vec()], ..Items::default() };
    let tokens = tokens(text);
    Scan { tokens: &tokens, at: 0, items: &mut items }.block(module.to_vec());
    items
}

struct Scan<'a, 'b> {
    tokens: &'b [Token<'a>],
    at: usize,
    items: &'b mut Items,
}

const ITEMS: [&str; 16] = [
    "pub",
    "fn",
    "mod",
    "use",
    "struct",
    "enum",
    "union",
    "trait",
    "type",
    "const",
    "static",
    "impl",
    "unsafe",
    "extern",
    "let",
    "macro_rules",
];

impl<'a> Scan<'a, '_> {
    fn token(&self, ahead: usize) -> Option<Token<'a>> {
        self.tokens.get(self.at + ahead).copied()
    }

    fn word(&self, ahead: usize) -> Option<&'a str> {
        match self.token(ahead) {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn is(&self, ahead: usize, sign: char) -> bool {
        self.token(ahead) == Some(Token::Sign(sign))
    }

    /// Reads the items of a module, up to the brace that closes it.
    fn block(&mut self, module: Path) {
        let mut depth = 0;
        let mut is_public = false;
        while let Some(token) = self.token(0) {
            match token {
                Token::Sign('}') if depth == 0 => break,
                Token::Sign(sign) => {
                    depth += match sign {
                        '{' | '(' | '[' => 1,
                        '}' | ')' | ']' => -1,
                        _ => 0,
                    };
                    match sign {
                        '#' => {
                            self.attribute(&module);
                            continue;
                        }
                        // A variable of a macro.
                        '$' if self.word(1) != Some("crate") => self.at += 1,
                        _ => {}
                    }
                    self.at += 1;
                }
                Token::Joint => self.at += 1,
                Token::Word("pub") => {
                    is_public = true;
                    self.at += 1;
                    if self.is(0, '(') && matches!(self.word(1), Some("crate" | "super" | "self" | "in")) {
                        self.group();
                    }
                    continue;
                }
                Token::Word("use") => self.import(&module, is_public),
                Token::Word("mod") if self.word(1).is_some() => self.module(&module),
                Token::Word("impl") if depth == 0 && self.begins_item() => self.implementation(&module),
                Token::Word(word) => {
                    if depth == 0 {
                        self.definition(&module, word);
                    }
                    self.path(&module);
                }
            }
            is_public = false;
        }
        self.at += 1;
    }

    /// Whether an item begins here. `impl` also stands in types.
    fn begins_item(&self) -> bool {
        let before = self.at.checked_sub(1).map(|at| self.tokens[at]);
        matches!(before, None | Some(Token::Sign(';' | '{' | '}' | ']') | Token::Word("unsafe")))
    }

    /// Skips a group of brackets.
    fn group(&mut self) {
        let mut depth = 0;
        while let Some(token) = self.token(0) {
            self.at += 1;
            depth += match token {
                Token::Sign('{' | '(' | '[') => 1,
                Token::Sign('}' | ')' | ']') => -1,
                _ => 0,
            };
            if depth == 0 {
                break;
            }
        }
    }

    /// Skips an attribute, and what stands under `#[cfg(test)]` or `#[test]`.
    fn attribute(&mut self, module: &[String]) {
        self.at += 1;
        let is_inner = self.is(0, '!');
        self.at += usize::from(is_inner);
        let start = self.at;
        self.group();
        let words: Vec<&str> = self.tokens[start..self.at]
            .iter()
            .filter_map(|token| if let Token::Word(word) = token { Some(*word) } else { None })
            .collect();
        let is_test = match words.first() {
            Some(&"test") => true,
            Some(&"cfg") => words.contains(&"test") && !words.contains(&"any") && !words.contains(&"not"),
            _ => false,
        };
        if is_test && !is_inner {
            self.skip_item(module);
        }
    }

    fn skip_item(&mut self, module: &[String]) {
        while self.is(0, '#') {
            self.at += 1;
            self.group();
        }
        if self.word(0) == Some("mod") && self.is(2, ';') {
            let name = self.word(1).unwrap().to_owned();
            self.items.test_modules.push(joined(module, &name));
        }
        let is_item = self.word(0).is_some_and(|word| ITEMS.contains(&word));
        let ends_with_sign =
            matches!(self.word(0), Some("use" | "const" | "static" | "let")) && self.word(1) != Some("fn");
        while let Some(token) = self.token(0) {
            match token {
                Token::Sign('{') if is_item && !ends_with_sign => return self.group(),
                Token::Sign('{' | '(' | '[') => self.group(),
                Token::Sign('}' | ')' | ']') => return,
                Token::Sign(';') => return self.at += 1,
                Token::Sign(',') if !is_item => return self.at += 1,
                _ => self.at += 1,
            }
        }
    }

    fn module(&mut self, module: &[String]) {
        let name = self.word(1).unwrap();
        self.at += 3;
        if self.tokens.get(self.at - 1) == Some(&Token::Sign('{')) {
            let inner = joined(module, name);
            self.items.modules.push(inner.clone());
            self.block(inner);
        }
    }

    fn definition(&mut self, module: &[String], word: &str) {
        let name = match word {
            "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union" => self.word(1),
            "macro_rules" if self.is(1, '!') => self.word(2),
            _ => None,
        };
        let Some(name) = name.filter(|name| !["fn", "unsafe", "mut", "async", "extern"].contains(name))
        else {
            return;
        };
        self.items.defined.push((module.to_vec(), name.to_owned()));
        if word == "macro_rules" {
            self.items.macros.push(name.to_owned());
        }
    }

    /// Reads a path in code.
    fn path(&mut self, module: &[String]) {
        let before = |n: usize| self.at.checked_sub(n).and_then(|at| self.tokens.get(at).copied());
        let is_member = before(1) == Some(Token::Sign('.')) && before(2) != Some(Token::Sign('.'));
        let mut path = Path::new();
        while let Some(word) = self.word(0) {
            path.push(word.to_owned());
            self.at += 1;
            if self.token(0) != Some(Token::Joint) || self.word(1).is_none() {
                break;
            }
            self.at += 1;
        }
        if self.is(0, '!') && !self.is(1, '=') {
            self.items.macro_calls.push(path.last().unwrap().clone());
        }
        if !is_member {
            self.items.named.push((module.to_vec(), path));
        }
    }

    fn import(&mut self, module: &[String], is_public: bool) {
        // `use<'a>` in a type is no import.
        self.at += 1;
        if self.is(0, '<') {
            return;
        }
        self.branches(module, is_public, &Path::new());
        self.at += 1;
    }

    /// Reads a tree of imports after `prefix`, up to its end.
    fn branches(&mut self, module: &[String], is_public: bool, prefix: &[String]) {
        let import = |path: Path, alias| Import { module: module.to_vec(), path, alias, is_public };
        let mut path = prefix.to_vec();
        loop {
            match self.token(0) {
                Some(Token::Joint) => self.at += 1,
                Some(Token::Sign('*')) => {
                    self.at += 1;
                    return self.items.imports.push(import(path, None));
                }
                Some(Token::Sign('{')) => {
                    self.at += 1;
                    while !self.is(0, '}') && self.token(0).is_some() {
                        self.branches(module, is_public, &path);
                        self.at += usize::from(self.is(0, ','));
                    }
                    self.at += 1;
                    return;
                }
                Some(Token::Word("as")) => {
                    let alias = self.word(1).unwrap_or_default().to_owned();
                    self.at += 2;
                    return self.items.imports.push(import(path, Some(alias)));
                }
                Some(Token::Word(word)) => {
                    self.at += 1;
                    if word != "self" || path.is_empty() {
                        path.push(word.to_owned());
                    }
                    if !matches!(self.token(0), Some(Token::Joint | Token::Word("as"))) {
                        let alias = path.last().cloned();
                        return self.items.imports.push(import(path, alias));
                    }
                }
                _ => return,
            }
        }
    }

    /// Reads the head of an `impl` block: its own type. The paths of the head are read with the rest.
    fn implementation(&mut self, module: &[String]) {
        self.at += 1;
        let start = self.at;
        if self.is(0, '<') {
            self.angles();
        }
        let mut own = Path::new();
        while let Some(token) = self.token(0) {
            match token {
                Token::Sign('{' | ';') | Token::Word("where") => break,
                Token::Sign('<') => self.angles(),
                Token::Sign('(' | '[') => self.group(),
                Token::Word("for") => {
                    own.clear();
                    self.at += 1;
                }
                Token::Word("dyn" | "mut" | "const" | "unsafe") => self.at += 1,
                Token::Word(word) => {
                    if self.tokens[self.at - 1] != Token::Joint {
                        own.clear();
                    }
                    own.push(word.to_owned());
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
        self.at = start;
        if !own.is_empty() {
            self.items.impls.push((module.to_vec(), own));
        }
    }

    /// Skips `<...>`.
    fn angles(&mut self) {
        let mut depth = 0;
        while let Some(token) = self.token(0) {
            let is_arrow = token == Token::Sign('>') && self.tokens[self.at - 1] == Token::Sign('-');
            self.at += 1;
            depth += match token {
                Token::Sign('<') => 1,
                Token::Sign('>') if !is_arrow => -1,
                _ => 0,
            };
            if depth == 0 {
                break;
            }
        }
    }
}

fn joined(module: &[String], name: &str) -> Path {
    let mut path = module.to_vec();
    path.push(name.to_owned());
    path
}
