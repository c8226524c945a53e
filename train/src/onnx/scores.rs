//! The outputs of models as nodes.

use super::graph::{Attribute, Dim, Graph, Value};
use super::messages::{FLOAT, INT64};
use super::{EXAMPLES, Features, OnnxError, OnnxSource, Rows};
use crate::learn::measures::{NumberLoss, Objective};

/// Adds the nodes of a model, and its outputs.
pub fn outputs(
    graph: &mut Graph,
    source: &OnnxSource<'_>,
    rows: &Rows<'_>,
    features: &Features,
) -> Result<(), OnnxError> {
    let start = source.normalization.map_or(0.0, |normalization| normalization.start());
    if let Objective::Class(classes) = source.task {
        classes_of(graph, (rows, features), classes, start);
        return Ok(());
    }
    let mut margin = linear(graph, rows, features);
    let factors = rows.width - 1;
    let pairs = match source.kind {
        "lr" | "linear" => None,
        "fm" | "mf" => {
            let products = scaled(graph, (1, 1 + factors), rows, features);
            Some(pairs_of_factors(graph, &products))
        }
        "ffm" => Some(pairs_of_fields(graph, factors, rows, features)),
        "deepfm" => {
            let products = scaled(graph, (1, 1 + factors), rows, features);
            let pairs = pairs_of_factors(graph, &products);
            let pooled = pooled(graph, factors, &products, features);
            let network = network(graph, source, pooled);
            Some(graph.node("Add", &[&pairs, &network]))
        }
        other => return Err(OnnxError::Kind(other.to_owned())),
    };
    if let Some(pairs) = pairs {
        margin = graph.node("Add", &[&margin, &pairs]);
    }
    let intercept = graph.floats(&[], &[rows.intercept(0) + start]);
    margin = graph.node("Add", &[&margin, &intercept]);
    if source.offset {
        let meaning = "what is added to the margin of each example; without it 0";
        let offset = graph.optional_input("offset", &[Dim::Free("offsets")], meaning);
        margin = graph.node("Add", &[&margin, &offset]);
    }
    match source.task {
        Objective::Number(loss) => {
            let number = if loss == NumberLoss::Poisson { graph.node("Exp", &[&margin]) } else { margin };
            graph.output("prediction", &number, FLOAT, &[EXAMPLES], "the predicted number");
        }
        task => {
            graph.output("margin", &margin, FLOAT, &[EXAMPLES], "above 0 where label 1 is predicted");
            if task == Objective::Click {
                let probability = graph.node("Sigmoid", &[&margin]);
                graph.output("probability", &probability, FLOAT, &[EXAMPLES], "the probability of label 1");
            }
        }
    }
    Ok(())
}

/// The rows of features, weights `from` to `to` of each: (examples, features, weights).
fn gathered(graph: &mut Graph, (from, to): (usize, usize), rows: &Rows<'_>, features: &Features) -> Value {
    let table = graph.floats(&[rows.keys.len() + 1, to - from], &rows.part(from, to));
    graph.node("Gather", &[&table, &features.rows])
}

/// The rows of features times their values.
fn scaled(graph: &mut Graph, weights: (usize, usize), rows: &Rows<'_>, features: &Features) -> Value {
    let (values, gathered) = (graph.unsqueeze(&features.values, 2), gathered(graph, weights, rows, features));
    graph.node("Mul", &[&gathered, &values])
}

/// The sum of w x: (examples,).
fn linear(graph: &mut Graph, rows: &Rows<'_>, features: &Features) -> Value {
    let table = graph.floats(&[rows.keys.len() + 1], &rows.part(0, 1));
    let weights = graph.node("Gather", &[&table, &features.rows]);
    let products = graph.node("Mul", &[&weights, &features.values]);
    graph.sum(&products, 1)
}

/// Half of |sum v x|^2 - sum |v x|^2, of the products v x (examples, features, factors): (examples,).
fn pairs_of_factors(graph: &mut Graph, products: &Value) -> Value {
    let sums = graph.sum(products, 1);
    let of_sums = graph.node("Mul", &[&sums, &sums]);
    let squares = graph.node("Mul", &[products, products]);
    let squares = graph.sum(&squares, 1);
    let pairs = graph.node("Sub", &[&of_sums, &squares]);
    let pairs = graph.sum(&pairs, 1);
    halved(graph, &pairs)
}

fn halved(graph: &mut Graph, value: &Value) -> Value {
    let half = graph.floats(&[], &[0.5]);
    graph.node("Mul", &[value, &half])
}

/// 1 where a feature is of a place, else 0: (examples, features, places). Without fields all features are of one.
fn places(graph: &mut Graph, features: &Features) -> Value {
    let all: Vec<i64> = (0..features.place_count as i64).collect();
    let all = graph.ints(&[all.len()], &all);
    let of = match &features.places {
        Some(places) => places.clone(),
        None => {
            let zero = graph.ints(&[], &[0]);
            graph.node("Mul", &[&features.rows, &zero])
        }
    };
    let of = graph.unsqueeze(&of, 2);
    let is_there = graph.node("Equal", &[&of, &all]);
    graph.cast(&is_there, FLOAT)
}

/// The sums of `products` (examples, features, weights) over the features of each place: (examples, places, weights).
fn by_place(graph: &mut Graph, places: &Value, products: &Value) -> Value {
    let turned = graph.node_with("Transpose", &[places], vec![Attribute::Ints("perm", vec![0, 2, 1])]);
    graph.node("MatMul", &[&turned, products])
}

/// The pairs of a field-aware machine: half of the sum of S(a, b) . S(b, a), less half of the sum of |v_i,f(i) x_i|^2.
fn pairs_of_fields(graph: &mut Graph, width: usize, rows: &Rows<'_>, features: &Features) -> Value {
    let (count, factors) = (features.place_count as i64, (width / features.place_count) as i64);
    let products = scaled(graph, (1, 1 + width), rows, features);
    let places = places(graph, features);
    let sums = by_place(graph, &places, &products);
    let sums = graph.reshape(&sums, &[0, count, count, factors]);
    let across = graph.node_with("Transpose", &[&sums], vec![Attribute::Ints("perm", vec![0, 2, 1, 3])]);
    let pairs = graph.node("Mul", &[&sums, &across]);
    let pairs = [3, 2, 1].iter().fold(pairs, |pairs, &axis| graph.sum(&pairs, axis));
    let vectors = graph.reshape(&products, &[0, 0, count, factors]);
    let own = graph.unsqueeze(&places, 3);
    let own = graph.node("Mul", &[&vectors, &own]);
    let squares = graph.node("Mul", &[&own, &own]);
    let squares = [3, 2, 1].iter().fold(squares, |squares, &axis| graph.sum(&squares, axis));
    let pairs = graph.node("Sub", &[&pairs, &squares]);
    halved(graph, &pairs)
}

/// What the network reads: the sum of v x of each field, (examples, inputs).
fn pooled(graph: &mut Graph, factors: usize, products: &Value, features: &Features) -> Value {
    // A network of one vector reads all features, also those of other fields.
    if features.place_count == 1 {
        return graph.sum(products, 1);
    }
    let places = places(graph, features);
    let sums = by_place(graph, &places, products);
    graph.reshape(&sums, &[0, (features.place_count * factors) as i64])
}

/// The output of the layers: (examples,).
fn network(graph: &mut Graph, source: &OnnxSource<'_>, input: Value) -> Value {
    let mut value = input;
    for (number, units) in (1..).zip(&source.layers) {
        let (weights, biases, dims) = layer(units);
        let (weights, biases) = (graph.floats(&dims, &weights), graph.floats(&[dims[0]], &biases));
        let settings = vec![Attribute::Int("transB", 1)];
        value = graph.node_with("Gemm", &[&value, &weights, &biases], settings);
        if number < source.layers.len() {
            value = graph.node("Relu", &[&value]);
        }
    }
    graph.reshape(&value, &[-1])
}

/// The weights of a layer (units x inputs), its biases, and its units and inputs.
fn layer(units: &[Vec<f32>]) -> (Vec<f32>, Vec<f32>, [usize; 2]) {
    let inputs = units.first().map_or(0, |unit| unit.len() - 1);
    let weights = units.iter().flat_map(|unit| unit[..inputs].iter().copied()).collect();
    (weights, units.iter().map(|unit| unit[inputs]).collect(), [units.len(), inputs])
}

fn classes_of(graph: &mut Graph, (rows, features): (&Rows<'_>, &Features), classes: usize, start: f32) {
    let products = scaled(graph, (0, classes), rows, features);
    let logits = graph.sum(&products, 1);
    let intercepts: Vec<f32> = (0..classes).map(|class| rows.intercept(class) + start).collect();
    let intercepts = graph.floats(&[classes], &intercepts);
    let logits = graph.node("Add", &[&logits, &intercepts]);
    let best = vec![Attribute::Int("axis", 1), Attribute::Int("keepdims", 0)];
    let best = graph.node_with("ArgMax", &[&logits], best);
    graph.output("class", &best, INT64, &[EXAMPLES], "the likeliest class");
    let chances = graph.node_with("Softmax", &[&logits], vec![Attribute::Int("axis", 1)]);
    let shape = [EXAMPLES, Dim::Fixed(classes)];
    graph.output("probabilities", &chances, FLOAT, &shape, "the probability of each class");
}
