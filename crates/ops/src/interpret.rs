//! The reference interpreter: runs a graph node by node on the host through each op's `reference`, or through the
//! expansion of a fused op. It is the specification that devices are compared with; it is never fast.

use std::collections::HashMap;

use frit_ir::dim::{Dim, DimError, Sym};
use frit_ir::graph::{GraphError, Node, Source, Type, ValueId};
use frit_ir::op::{Case, InferCtx, OpDef, OpError, RefCtx};
use frit_ir::symbols::Relation;
use frit_ir::tensor::TensorError;
use frit_ir::{Attr, Attrs, Graph, Registry, Symbols, Tensor};

/// What a run gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// The outputs by name, in the graph's order.
    pub outputs: Vec<(String, Tensor)>,
    /// The version of each state that the next run starts from, by the state's name.
    pub states: Vec<(String, Tensor)>,
}

/// Why a graph could not be interpreted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InterpretError {
    /// An input or parameter has no value.
    #[error("`{0}` has no value; it is {1}")]
    Missing(String, Box<Type>),
    /// A value for a name that is no input, parameter or state.
    #[error("`{0}` is no input, parameter or state of this graph")]
    UnknownValue(String),
    /// A size for a symbol that the graph does not declare.
    #[error("`{0}` is no symbol of this graph")]
    UnknownSymbol(String),
    /// A size outside its range, or a promise or guard that does not hold.
    #[error("{0}")]
    Size(String),
    /// A dimension without a value.
    #[error(transparent)]
    Dim(#[from] DimError),
    /// A value of another type than the graph says.
    #[error("`{name}` is {got}; it must be {want}")]
    Type {
        /// The value.
        name: String,
        /// The type in the graph, under the sizes of this run.
        want: Box<Type>,
        /// The type of the value.
        got: Box<Type>,
    },
    /// No such op.
    #[error("there is no op `{0}`")]
    Op(String),
    /// A node failed.
    #[error("`{op}` giving `{value}`: {source}")]
    Node {
        /// The op.
        op: String,
        /// Its first result.
        value: String,
        /// Why.
        source: Box<OpError>,
    },
    /// A state has a type that has no zero.
    #[error("`{0}`: {1}")]
    State(String, TensorError),
}

/// The sizes of one run.
struct Sizes(HashMap<String, i64>);

impl Sizes {
    /// Binds `sizes` to the symbols of `graph`, checking ranges, promises and guards.
    fn bind(graph: &Graph, sizes: &[(&str, i64)]) -> Result<Sizes, InterpretError> {
        let bound = Sizes(sizes.iter().map(|(n, v)| ((*n).into(), *v)).collect());
        for (name, v) in sizes {
            let range =
                graph.symbols.range(&Sym::new(name)).ok_or(InterpretError::UnknownSymbol((*name).into()))?;
            if !(range.min..=range.max).contains(v) {
                let (min, max) = (range.min, range.max);
                return Err(InterpretError::Size(format!("`{name}` is {v}; its range is {min}..={max}")));
            }
        }
        for (expr, max) in graph.symbols.bounds() {
            let v = bound.eval(expr)?;
            if v > *max {
                return Err(InterpretError::Size(format!("{expr} is {v}; it must be at most {max}")));
            }
        }
        for g in &graph.guards {
            let (l, r) = (bound.eval(&g.left)?, bound.eval(&g.right)?);
            let (holds, sign) = match g.relation {
                Relation::Equal => (l == r, "="),
                Relation::AtMost => (l <= r, "<="),
            };
            if !holds {
                let (left, right, why) = (&g.left, &g.right, &g.why);
                return Err(InterpretError::Size(format!(
                    "{why}: {left} {sign} {right} must hold, got {l} and {r}"
                )));
            }
        }
        Ok(bound)
    }

    fn eval(&self, d: &Dim) -> Result<i64, DimError> {
        d.eval(&|s| self.0.get(s.name()).copied())
    }

    fn ty(&self, ty: &Type) -> Result<Type, DimError> {
        let dims = ty.shape.iter().map(|d| self.eval(d)).collect::<Result<Vec<_>, _>>()?;
        Ok(Type::new(ty.dtype, dims))
    }

    /// `attrs` with every dimension replaced by its value.
    fn attrs(&self, attrs: &Attrs) -> Result<Attrs, DimError> {
        let mut out = Attrs::new();
        for (name, a) in attrs.iter() {
            out.set(name, self.attr(a)?);
        }
        Ok(out)
    }

    fn attr(&self, a: &Attr) -> Result<Attr, DimError> {
        Ok(match a {
            Attr::Dim(d) => Attr::Int(self.eval(d)?),
            Attr::List(all) => Attr::List(all.iter().map(|a| self.attr(a)).collect::<Result<_, _>>()?),
            other => other.clone(),
        })
    }
}

/// The type of a host tensor.
pub fn type_of(t: &Tensor) -> Type {
    Type::new(t.dtype(), t.shape().iter().copied())
}

/// Runs `graph` with its symbols bound to `sizes`. `values` holds the inputs, parameters and states by name; a state
/// that is left out starts at zero.
///
/// # Errors
/// Sizes out of range, values missing, unknown or of another type, and whatever a node refuses.
pub fn interpret(
    graph: &Graph,
    registry: &Registry,
    sizes: &[(&str, i64)],
    values: &HashMap<String, Tensor>,
) -> Result<Results, InterpretError> {
    let sizes = Sizes::bind(graph, sizes)?;
    let mut live = given(graph, &sizes, values)?;
    let mut uses = graph.use_counts();
    for node in graph.nodes() {
        let results = run_in(graph, registry, &sizes, node, &live)?;
        for (v, t) in node.outputs.iter().zip(results) {
            live[v.0 as usize] = Some(t);
        }
        for v in node.operands() {
            uses[v.0 as usize] -= 1;
            if uses[v.0 as usize] == 0 {
                live[v.0 as usize] = None;
            }
        }
    }
    let take = |v: ValueId| {
        let x = graph.value(v);
        live[v.0 as usize]
            .clone()
            .ok_or_else(|| InterpretError::Missing(x.name.to_string(), Box::new(x.ty.clone())))
    };
    let mut results = Results { outputs: Vec::new(), states: Vec::new() };
    for (name, v) in graph.outputs() {
        results.outputs.push((name.clone(), take(*v)?));
    }
    for s in graph.states() {
        results.states.push((graph.value(s.first).name.to_string(), take(s.last)?));
    }
    Ok(results)
}

/// The values that no node makes, by value number.
fn given(
    graph: &Graph,
    sizes: &Sizes,
    values: &HashMap<String, Tensor>,
) -> Result<Vec<Option<Tensor>>, InterpretError> {
    for name in values.keys() {
        let source = graph.find(name).map(|v| &graph.value(v).source);
        if !matches!(source, Some(Source::Input | Source::Param | Source::State)) {
            return Err(InterpretError::UnknownValue(name.clone()));
        }
    }
    let mut live = vec![None; graph.values().len()];
    for (i, v) in graph.values().iter().enumerate() {
        let name = v.name.to_string();
        let t = match &v.source {
            Source::Node(..) => continue,
            Source::Const(t) => t.clone(),
            source => {
                let ty = sizes.ty(&v.ty)?;
                match (values.get(&name), source) {
                    (Some(t), _) => check_type(&name, ty, t)?.clone(),
                    (None, Source::State) => zeros(&ty).map_err(|e| InterpretError::State(name, e))?,
                    _ => return Err(InterpretError::Missing(name, Box::new(ty))),
                }
            }
        };
        live[i] = Some(t);
    }
    Ok(live)
}

fn check_type<'a>(name: &str, want: Type, t: &'a Tensor) -> Result<&'a Tensor, InterpretError> {
    let got = type_of(t);
    if want == got {
        return Ok(t);
    }
    Err(InterpretError::Type { name: name.into(), want: Box::new(want), got: Box::new(got) })
}

fn zeros(ty: &Type) -> Result<Tensor, TensorError> {
    let shape: Vec<usize> =
        ty.shape.iter().map(|d| usize::try_from(d.as_const().unwrap_or(0)).unwrap_or(0)).collect();
    // A count that overflows gets no bytes here and is refused below.
    let n = shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b));
    let bytes = n.and_then(|n| ty.dtype.bytes_of(n)).unwrap_or(0);
    Tensor::new(ty.dtype, &shape, vec![0u8; bytes])
}

/// Runs one node of `graph` and checks its results against the graph's types.
fn run_in(
    graph: &Graph,
    registry: &Registry,
    sizes: &Sizes,
    node: &Node,
    live: &[Option<Tensor>],
) -> Result<Vec<Tensor>, InterpretError> {
    let def = registry.get(&node.op).ok_or_else(|| InterpretError::Op(node.op.to_string()))?;
    let name = node.outputs.first().map_or_else(String::new, |v| graph.value(*v).name.to_string());
    let fail = |source| InterpretError::Node {
        op: node.op.to_string(),
        value: name.clone(),
        source: Box::new(source),
    };
    let attrs = sizes.attrs(&node.attrs)?;
    let inputs: Vec<Option<&Tensor>> =
        node.inputs.iter().map(|v| if v.is_none() { None } else { live[v.0 as usize].as_ref() }).collect();
    let results = run_node(registry, def, &attrs, &inputs).map_err(fail)?;
    for (v, t) in node.outputs.iter().zip(&results) {
        let x = graph.value(*v);
        check_type(&x.name, sizes.ty(&x.ty)?, t)?;
    }
    Ok(results)
}

/// Runs one op on host tensors: inference, then its reference, or its expansion where it is fused. Dimensions in `attrs`
/// must be constant.
///
/// # Errors
/// Whatever the op refuses; results of other types than inferred.
pub fn run_node(
    registry: &Registry,
    def: &OpDef,
    attrs: &Attrs,
    inputs: &[Option<&Tensor>],
) -> Result<Vec<Tensor>, OpError> {
    let types: Vec<Option<Type>> = inputs.iter().map(|t| t.map(type_of)).collect();
    let refs: Vec<Option<&Type>> = types.iter().map(Option::as_ref).collect();
    let symbols = Symbols::default();
    let mut ctx = InferCtx::new(attrs, &refs, &symbols);
    let outputs = (def.infer)(&mut ctx)?;
    if let Some(g) = ctx.into_guards().first() {
        return Err(OpError::Shape(format!("{}: {} and {} are not constant", g.why, g.left, g.right)));
    }
    outputs.iter().try_for_each(fits)?;
    let results = match def.reference {
        Some(reference) => reference(&RefCtx { attrs, inputs, outputs: &outputs })?,
        None => run_expansion(registry, def, attrs, inputs)?,
    };
    let got: Vec<Type> = results.iter().map(type_of).collect();
    if got != outputs {
        let list = |t: &[Type]| t.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
        let (want, got) = (list(&outputs), list(&got));
        return Err(OpError::Shape(format!("the reference gives ({got}) where ({want}) is inferred")));
    }
    Ok(results)
}

/// Refuses a result that no memory holds, before anything is computed.
fn fits(ty: &Type) -> Result<(), OpError> {
    let extents = ty.shape.iter().map(|d| d.as_const().and_then(|v| usize::try_from(v).ok()));
    let n = extents.into_iter().try_fold(1usize, |n, d| n.checked_mul(d?));
    match n.and_then(|n| ty.dtype.bytes_of(n)).filter(|b| isize::try_from(*b).is_ok()) {
        Some(_) => Ok(()),
        None => Err(OpError::Shape(format!("a result {ty} is beyond any memory"))),
    }
}

/// Runs a fused op as what it expands to, in a graph of its own.
fn run_expansion(
    registry: &Registry,
    def: &OpDef,
    attrs: &Attrs,
    inputs: &[Option<&Tensor>],
) -> Result<Vec<Tensor>, OpError> {
    let expand = def
        .expand
        .ok_or_else(|| OpError::Value(format!("`{}` has neither a reference nor an expansion", def.name)))?;
    let mut graph = Graph::new(def.name);
    let (mut ids, mut values) = (Vec::new(), HashMap::new());
    for (i, t) in inputs.iter().enumerate() {
        let Some(t) = t else {
            ids.push(ValueId::NONE);
            continue;
        };
        let name = format!("operand{i}");
        ids.push(graph.input(&name, type_of(t))?);
        values.insert(name, (*t).clone());
    }
    let node = Node {
        op: def.name.into(),
        attrs: attrs.clone(),
        inputs: ids.iter().copied().collect(),
        outputs: Default::default(),
    };
    for (i, v) in expand(&mut graph, registry, &node, &ids)?.into_iter().enumerate() {
        graph.output(&format!("result{i}"), v)?;
    }
    let results =
        interpret(&graph, registry, &[], &values).map_err(|e| OpError::Value(format!("expansion: {e}")))?;
    Ok(results.outputs.into_iter().map(|(_, t)| t).collect())
}

/// The results of a case by the reference.
///
/// # Errors
/// The op is not in the registry; whatever it refuses.
pub fn reference_of_case(registry: &Registry, op: &str, case: &Case) -> Result<Vec<Tensor>, OpError> {
    let def = registry.get(op).ok_or_else(|| GraphError::Op(op.into()))?;
    let inputs: Vec<Option<&Tensor>> = case.inputs.iter().map(|i| i.as_ref().map(|c| &c.tensor)).collect();
    run_node(registry, def, &case.attrs, &inputs)
}
