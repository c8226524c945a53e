//! A graph of ONNX that is built node by node.

use super::messages::{
    AttributeProto, DOUBLE, DimensionProto, FLOAT, GraphProto, INT64, INTS, NodeProto, ONE_INT, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

/// The domain of the operators for classical machine learning.
pub const ML: &str = "ai.onnx.ml";

/// What flows between nodes, by its name.
#[derive(Clone, Debug)]
pub struct Value(String);

/// A dimension of an input or an output.
#[derive(Clone, Copy)]
pub enum Dim {
    /// As many as a call brings, by this name.
    Free(&'static str),
    /// A fixed number.
    Fixed(usize),
}

/// A setting of a node.
pub enum Attribute {
    Int(&'static str, i64),
    Ints(&'static str, Vec<i64>),
}

/// A graph in the making.
#[derive(Default)]
pub struct Graph {
    graph: GraphProto,
}

impl Graph {
    /// An input with this name, and what it means.
    pub fn input(&mut self, name: &str, of: i32, dims: &[Dim], meaning: &str) -> Value {
        self.graph.input.push(described(name, of, dims, meaning));
        Value(name.to_owned())
    }

    /// An input of float32 that a call may leave out: it is then 0 for all examples.
    pub fn optional_input(&mut self, name: &str, dims: &[Dim], meaning: &str) -> Value {
        let zero = TensorProto {
            dims: vec![1],
            data_type: FLOAT,
            name: name.to_owned(),
            raw_data: 0f32.to_le_bytes().to_vec(),
        };
        self.graph.initializer.push(zero);
        self.input(name, FLOAT, dims, meaning)
    }

    /// Makes a value an output with this name.
    pub fn output(&mut self, name: &str, value: &Value, of: i32, dims: &[Dim], meaning: &str) {
        self.graph.output.push(described(name, of, dims, meaning));
        self.push("Identity", &[value], name, Vec::new());
    }

    /// The output of a node with one.
    pub fn node(&mut self, operator: &str, inputs: &[&Value]) -> Value {
        self.node_with(operator, inputs, Vec::new())
    }

    /// The output of a node with these settings.
    pub fn node_with(&mut self, operator: &str, inputs: &[&Value], settings: Vec<Attribute>) -> Value {
        let name = format!("{}_{}", operator.to_lowercase(), self.graph.node.len());
        self.push(operator, inputs, &name, settings);
        Value(name)
    }

    /// The values of these keys, and `default` of all others.
    ///
    /// # Panics
    /// When there are not as many values as keys.
    pub fn look_up(&mut self, keys: &Value, known: Vec<i64>, values: Vec<i64>, default: i64) -> Value {
        assert_eq!(known.len(), values.len(), "a value for each key");
        let settings = vec![
            Attribute::Ints("keys_int64s", known),
            Attribute::Ints("values_int64s", values),
            Attribute::Int("default_int64", default),
        ];
        let found = self.node_with("LabelEncoder", &[keys], settings);
        if let Some(node) = self.graph.node.last_mut() {
            node.domain = ML.to_owned();
        }
        found
    }

    /// A constant of float32.
    pub fn floats(&mut self, dims: &[usize], values: &[f32]) -> Value {
        self.constant(FLOAT, dims, values.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// A constant of float64.
    pub fn doubles(&mut self, dims: &[usize], values: &[f64]) -> Value {
        self.constant(DOUBLE, dims, values.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// A constant of int64.
    pub fn ints(&mut self, dims: &[usize], values: &[i64]) -> Value {
        self.constant(INT64, dims, values.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// The sum over one axis, which is gone afterwards.
    pub fn sum(&mut self, value: &Value, axis: i64) -> Value {
        let axis = self.ints(&[1], &[axis]);
        self.node_with("ReduceSum", &[value, &axis], vec![Attribute::Int("keepdims", 0)])
    }

    /// The value with a further axis of size 1.
    pub fn unsqueeze(&mut self, value: &Value, axis: i64) -> Value {
        let axis = self.ints(&[1], &[axis]);
        self.node("Unsqueeze", &[value, &axis])
    }

    /// The value in another shape. 0 keeps the size of an axis, and -1 is what is left.
    pub fn reshape(&mut self, value: &Value, dims: &[i64]) -> Value {
        let dims = self.ints(&[dims.len()], dims);
        self.node("Reshape", &[value, &dims])
    }

    /// The value with other elements.
    pub fn cast(&mut self, value: &Value, to: i32) -> Value {
        self.node_with("Cast", &[value], vec![Attribute::Int("to", to.into())])
    }

    /// The whole graph.
    pub fn finish(self, name: &str) -> GraphProto {
        GraphProto { name: name.to_owned(), ..self.graph }
    }

    fn constant(&mut self, data_type: i32, dims: &[usize], raw_data: Vec<u8>) -> Value {
        let name = format!("constant_{}", self.graph.initializer.len());
        let dims = dims.iter().map(|&n| n as i64).collect();
        self.graph.initializer.push(TensorProto { dims, data_type, name: name.clone(), raw_data });
        Value(name)
    }

    fn push(&mut self, operator: &str, inputs: &[&Value], output: &str, settings: Vec<Attribute>) {
        self.graph.node.push(NodeProto {
            input: inputs.iter().map(|value| value.0.clone()).collect(),
            output: vec![output.to_owned()],
            name: format!("{output}_node"),
            op_type: operator.to_owned(),
            attribute: settings.into_iter().map(Attribute::into_message).collect(),
            domain: String::new(),
        });
    }
}

impl Attribute {
    fn into_message(self) -> AttributeProto {
        let none = AttributeProto::default;
        match self {
            Attribute::Int(name, i) => {
                AttributeProto { name: name.to_owned(), i: Some(i), r#type: ONE_INT, ..none() }
            }
            Attribute::Ints(name, ints) => {
                AttributeProto { name: name.to_owned(), ints, r#type: INTS, ..none() }
            }
        }
    }
}

fn described(name: &str, elem_type: i32, dims: &[Dim], meaning: &str) -> ValueInfoProto {
    let dim = |dim: &Dim| match dim {
        Dim::Free(name) => DimensionProto { dim_param: Some((*name).to_owned()), ..Default::default() },
        Dim::Fixed(size) => DimensionProto { dim_value: Some(*size as i64), ..Default::default() },
    };
    let shape = Some(TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let tensor_type = Some(TensorTypeProto { elem_type, shape });
    let (name, doc_string) = (name.to_owned(), meaning.to_owned());
    ValueInfoProto { name, r#type: Some(TypeProto { tensor_type }), doc_string }
}
