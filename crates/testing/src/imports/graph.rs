//! Errors in the imports of a crate: those that point to a higher layer, and cycles.

use std::collections::{BTreeMap, BTreeSet};

/// One import, with the paths of both modules (`pool::slab`; empty for the crate root) and its line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Import {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) line: usize,
}

impl Import {
    fn shown(&self) -> String {
        format!("{} (line {}) imports {}", named(&self.from), self.line, named(&self.to))
    }
}

fn named(module: &str) -> &str {
    if module.is_empty() { "the crate root" } else { module }
}

/// The height of the layer that contains a module, if one does. The crate root is above all layers.
fn height(module: &str, layers: &[&str]) -> Option<usize> {
    if module.is_empty() {
        return Some(layers.len());
    }
    let is_in = |layer: &str| module.strip_prefix(layer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let of = layers.iter().enumerate().filter(|(_, layer)| is_in(layer));
    of.max_by_key(|(_, layer)| layer.len()).map(|(index, _)| index)
}

/// The modules that belong to no layer, except those that contain layers.
pub(super) fn unlisted(modules: &[String], layers: &[&str]) -> Vec<String> {
    let contains_layers =
        |module: &str| layers.iter().any(|layer| layer.strip_prefix(module).is_some_and(|rest| rest.starts_with("::")));
    let unlisted = modules.iter().filter(|module| height(module, layers).is_none() && !contains_layers(module));
    unlisted.map(|module| format!("{module} belongs to no layer")).collect()
}

/// The imports from a lower layer of a higher one.
pub(super) fn upward(imports: &[Import], layers: &[&str]) -> Vec<String> {
    let mut wrong = BTreeSet::new();
    for import in imports {
        if let (Some(from), Some(to)) = (height(&import.from, layers), height(&import.to, layers))
            && to > from
        {
            wrong.insert(format!("{}, which is in a higher layer", import.shown()));
        }
    }
    wrong.into_iter().collect()
}

/// For each set of modules that import each other in a cycle, the imports between them.
pub(super) fn cycles(imports: &[Import]) -> Vec<String> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for import in imports.iter().filter(|import| import.from != import.to) {
        next.entry(&import.from).or_default().insert(&import.to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|&module| (module, reachable(module, &next))).collect();
    let leads = |from: &str, to: &str| reached.get(from).is_some_and(|reached| reached.contains(to));
    let mut told = BTreeSet::new();
    let mut found = Vec::new();
    for &module in next.keys() {
        if !leads(module, module) || !told.insert(module) {
            continue;
        }
        let cycle: BTreeSet<&str> =
            next.keys().copied().filter(|other| leads(module, other) && leads(other, module)).collect();
        told.extend(&cycle);
        let mut within: Vec<_> = imports
            .iter()
            .filter(|import| import.from != import.to && cycle.contains(&*import.from) && cycle.contains(&*import.to))
            .collect();
        within.dedup_by(|one, other| (&one.from, &one.to) == (&other.from, &other.to));
        let lines: String = within.iter().map(|import| format!("\n    {}", import.shown())).collect();
        found.push(format!("{} modules form a cycle:{lines}", cycle.len()));
    }
    found
}

/// The modules that a module imports, directly or through others.
fn reachable<'a>(module: &'a str, next: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![module]);
    while let Some(module) = open.pop() {
        for &to in next.get(module).into_iter().flatten() {
            if reached.insert(to) {
                open.push(to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(from: &str, to: &str) -> Import {
        Import { from: from.to_owned(), to: to.to_owned(), line: 1 }
    }

    #[test]
    fn an_import_of_a_higher_layer_is_an_error_and_one_of_a_lower_is_not() {
        let layers = ["low", "high", "high::cellar"];
        assert_eq!(
            upward(&[import("high::a", "low"), import("", "high"), import("low::a", "low::b")], &layers),
            [""; 0]
        );
        let told = upward(&[import("low::a", "high")], &layers);
        assert_eq!(told, ["low::a (line 1) imports high, which is in a higher layer"]);
        assert_eq!(upward(&[import("high::a", "high::cellar::b")], &layers).len(), 1);
        assert_eq!(upward(&[import("low", "")], &layers).len(), 1);
    }

    #[test]
    fn a_module_in_no_layer_is_an_error_and_the_parent_of_a_layer_is_not() {
        let modules = ["", "low", "low::a", "parent", "parent::high", "lowest"].map(str::to_owned);
        assert_eq!(unlisted(&modules, &["low", "parent::high"]), ["lowest belongs to no layer"]);
    }

    #[test]
    fn a_cycle_is_reported_once_with_its_imports_and_a_chain_is_not() {
        assert_eq!(cycles(&[import("a", "b"), import("b", "c"), import("a", "c"), import("a", "a")]), [""; 0]);
        let told = cycles(&[import("a", "b"), import("b", "c"), import("c", "a"), import("c", "d")]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("3 modules form a cycle"), "{told:?}");
        assert!(told[0].contains("c (line 1) imports a") && !told[0].contains("imports d"), "{told:?}");
    }
}
