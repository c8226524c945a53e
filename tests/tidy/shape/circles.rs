//! Circles of files that need each other, and the fewest edges that tie one.

use super::imports::Edges;
use std::collections::BTreeSet;

/// The circles of more than one file, the largest first.
pub fn circles(edges: &Edges) -> Vec<Vec<String>> {
    let mut left: BTreeSet<&String> = edges.keys().collect();
    let mut found = Vec::new();
    while let Some(file) = left.first().copied() {
        let both = &reached(edges, file, false) & &reached(edges, file, true);
        left.retain(|other| !both.contains(other));
        left.remove(file);
        if both.len() > 1 {
            found.push(both.into_iter().cloned().collect::<Vec<_>>());
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

/// The files that one needs, or that need it, over any number of steps.
fn reached<'a>(edges: &'a Edges, from: &'a String, backward: bool) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::from([from]);
    let mut waiting = vec![from];
    while let Some(file) = waiting.pop() {
        let next: Vec<&String> = if backward {
            edges.iter().filter(|(_, needs)| needs.contains_key(file)).map(|(other, _)| other).collect()
        } else {
            edges[file].keys().collect()
        };
        waiting.extend(next.into_iter().filter(|other| reached.insert(other)));
    }
    reached
}

/// An order of the files of a circle in which few edges lead back: those that, cut, would leave no circle. Finds no
/// better order by moving one file.
pub fn ties(edges: &Edges, circle: &[String]) -> Vec<(String, String)> {
    let needs: Vec<Vec<bool>> = circle
        .iter()
        .map(|file| circle.iter().map(|other| edges[file].contains_key(other)).collect())
        .collect();
    let mut order: Vec<usize> = (0..circle.len()).collect();
    order.sort_by_key(|file| needs[*file].iter().filter(|needed| **needed).count());
    while let Some(better) = moved(&needs, &order) {
        order = better;
    }
    let mut ties = Vec::new();
    for (at, file) in order.iter().enumerate() {
        let later = order[at + 1..].iter().filter(|other| needs[*file][**other]);
        ties.extend(later.map(|other| (circle[*file].clone(), circle[*other].clone())));
    }
    ties
}

/// The order with one file moved to where fewest edges lead back, if that is better.
fn moved(needs: &[Vec<bool>], order: &[usize]) -> Option<Vec<usize>> {
    for at in 0..order.len() {
        let file = order[at];
        let mut rest = order.to_vec();
        rest.remove(at);
        // Before all others, each file that it needs is an edge back. A step over one changes that by one or two.
        let mut cost = rest.iter().filter(|other| needs[file][**other]).count();
        let mut costs = vec![cost];
        for other in &rest {
            cost = cost + usize::from(needs[*other][file]) - usize::from(needs[file][*other]);
            costs.push(cost);
        }
        let best = (0..costs.len()).min_by_key(|place| costs[*place]).unwrap();
        if costs[best] < costs[at] {
            rest.insert(best, file);
            return Some(rest);
        }
    }
    None
}
