//! Crosses beside a plain oracle: all products of features, each set of features once.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The features of an example by the names of their fields, in order.
type Example = Vec<(&'static str, Vec<(u64, f32)>)>;

fn crosses(named: &[&str], lettered: &[&str]) -> Result<Crosses, String> {
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    Crosses::new(&owned(named), &owned(lettered))
}

/// The crossed features of an example, sorted.
fn crossed(crosses: &Crosses, example: &Example) -> Vec<(u64, u32)> {
    let (mut block, mut runs) = (Block::default(), Vec::new());
    block.clear();
    for (name, features) in example {
        block.keys.extend(features.iter().map(|(key, _)| key));
        block.values.extend(features.iter().map(|(_, value)| value));
        runs.push(FieldRun { field: FieldId::of(name.as_bytes()), end: block.keys.len() });
    }
    let own = block.keys.len();
    crosses.append(&mut block, 0, &runs, |_| ()).unwrap();
    let values = block.values[own..].iter().map(|value| value.to_bits());
    let mut all: Vec<(u64, u32)> = block.keys[own..].iter().copied().zip(values).collect();
    all.sort_unstable();
    all
}

/// The products of features of these fields, in the order of the names: a feature for each choice of one feature a
/// field. Of equal names each set of features is taken once.
fn products(names: &[&str], example: &Example) -> Vec<(u64, u32)> {
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    let features: Vec<(&str, u64, f32)> =
        example.iter().flat_map(|(name, features)| features.iter().map(|&(k, v)| (*name, k, v))).collect();
    let mut chosen: Vec<Vec<usize>> = vec![Vec::new()];
    for (depth, name) in sorted.iter().enumerate() {
        let all = |so_far: &Vec<usize>| {
            let of_name = (0..features.len()).filter(|&at| features[at].0 == *name);
            let may_follow =
                |at: &usize| depth == 0 || sorted[depth - 1] != *name || *at >= so_far[depth - 1];
            of_name.filter(may_follow).map(|at| [so_far.clone(), vec![at]].concat()).collect::<Vec<_>>()
        };
        chosen = chosen.iter().flat_map(all).collect();
    }
    let feature = |places: Vec<usize>| {
        let mut by_name = BTreeMap::<&str, Vec<u64>>::new();
        places.iter().for_each(|&at| by_name.entry(features[at].0).or_default().push(features[at].1));
        by_name.values_mut().for_each(|keys| keys.sort_unstable());
        let keys: Vec<u64> = by_name.into_values().flatten().collect();
        (cross_key(&keys), places.iter().fold(1.0, |product: f32, &at| product * features[at].2).to_bits())
    };
    let mut all: Vec<(u64, u32)> = chosen.into_iter().map(feature).collect();
    all.sort_unstable();
    all
}

fn an_example() -> impl Strategy<Value = Example> {
    let value = prop_oneof![Just(1.0f32), -3.0f32..3.0];
    let features = prop::collection::vec((0u64..50, value), 0..4);
    prop::collection::vec((prop::sample::select(vec!["age", "art", "band", ""]), features), 0..6)
}

proptest! {
    #[test]
    fn crosses_are_all_products(
        example in an_example(),
        names in prop::collection::vec(prop::sample::select(vec!["age", "art", "band"]), 2..=4),
    ) {
        let named = crosses(&[&names.join("*")], &[]).unwrap();
        prop_assert_eq!(crossed(&named, &example), products(&names, &example));
        let reversed: Vec<&str> = names.iter().rev().copied().collect();
        prop_assert_eq!(&named, &crosses(&[&reversed.join(",")], &[]).unwrap());
        // The texts say the same.
        let (texts, lettered) = named.texts();
        prop_assert_eq!(Crosses::new(&texts, &lettered).unwrap(), named);
    }

    #[test]
    fn the_order_of_features_changes_no_key(example in an_example()) {
        let cross = crosses(&["age*age", "age*band"], &[]).unwrap();
        let mut turned = example.clone();
        turned.reverse();
        turned.iter_mut().for_each(|(_, features)| features.reverse());
        let keys = |all: Vec<(u64, u32)>| all.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        prop_assert_eq!(keys(crossed(&cross, &example)), keys(crossed(&cross, &turned)));
    }
}

#[test]
fn letters_are_those_of_vw() {
    let example = vec![
        ("age", vec![(1, 1.0), (2, 1.0)]),
        ("art", vec![(3, 1.0)]),
        ("band", vec![(4, 2.0)]),
        ("", vec![(5, 1.0)]),
    ];
    let count = |letters: &str| crossed(&crosses(&[], &[letters]).unwrap(), &example).len();
    // vw 9.11.9 says so of `1 |age x y |art z |band w:2 | p`.
    assert_eq!(["ab", "ba", "aa", "bb", "::", "a "].map(count), [3, 3, 6, 1, 15, 3]);
}

#[test]
fn wrong_crosses_are_refused_by_name() {
    for (named, lettered, words) in [
        (vec!["a"], vec![], "\"a\" has 1 parts; 2 to 6 are possible"),
        (vec!["a,b,c,d,e,f,g"], vec![], "has 7 parts"),
        (vec!["a,,b"], vec![], "has a part without a name"),
        (vec!["a,b", "b*a"], vec![], "\"b*a\" is there twice"),
        (vec![], vec!["a"], "has 1 parts"),
    ] {
        let error = crosses(&named, &lettered).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    let many: Vec<String> = (0..257).map(|i| format!("a,b{i}")).collect();
    assert!(Crosses::new(&many, &[]).unwrap_err().contains("at most 256"));
}

#[test]
fn an_example_has_at_most_so_many_features() {
    let features: Vec<(u64, f32)> = (0..600).map(|key| (key, 1.0)).collect();
    let (mut block, mut runs) = (Block::default(), Vec::new());
    block.clear();
    for name in ["a", "b"] {
        block.keys.extend(features.iter().map(|(key, _)| key));
        block.values.extend(features.iter().map(|(_, value)| value));
        runs.push(FieldRun { field: FieldId::of(name.as_bytes()), end: block.keys.len() });
    }
    let error = crosses(&["a*b"], &[]).unwrap().append(&mut block, 0, &runs, |_| ()).unwrap_err();
    assert!(error.contains("262143"), "{error}");
}

/// Golden: a change here makes every saved model with crosses predict nonsense.
#[test]
fn frozen_values() {
    let frozen = [16_123_819_984_522_606_343, 18_032_878_890_308_171_029, 5_584_631_423_714_800_561];
    assert_eq!([cross_key(&[1, 2]), cross_key(&[2, 1]), cross_key(&[1, 2, 3])], frozen);
}
