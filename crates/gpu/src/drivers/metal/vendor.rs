//! Carrying out work for the vendor: graphs built of the calls of a program and compiled by MPSGraph, and matrix
//! multiplications of MPS. What runs when was decided by `graphs` and `plan`.
//!
//! MPSGraph takes memory as arrays of MPS, which begin at any byte of a buffer from macOS 15 on: on older systems there is none.

use std::sync::Arc;

use objc2::AnyThread;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSArray, NSData, NSDictionary, NSNumber, NSOperatingSystemVersion, NSProcessInfo};
use objc2_metal::MTLCommandBuffer;
use objc2_metal_performance_shaders::{
    MPSCommandBuffer, MPSDataType, MPSMatrix, MPSMatrixDescriptor, MPSMatrixMultiplication, MPSNDArray,
    MPSNDArrayDescriptor, MPSShape,
};
use objc2_metal_performance_shaders_graph::{
    MPSGraph, MPSGraphCompilationDescriptor, MPSGraphDevice, MPSGraphExecutable, MPSGraphOptimization,
    MPSGraphPaddingMode, MPSGraphShapedType, MPSGraphTensor, MPSGraphTensorData,
};

use super::encode::Queue;
use super::objects::{Buffer, Committed, Device};
use crate::driver::HostData;
use crate::graphs::call::{Binary, Call, Line, Node, Padding, Program, Reduction, Unary, Value};
use crate::launch::{MatrixProduct, VendorWork};
use frit_ir::DType;

/// The first system on which MPS's arrays begin anywhere in a buffer.
const OLDEST: isize = 15;

/// Whether this system has what graphs need.
pub(super) fn there() -> bool {
    let want = NSOperatingSystemVersion { majorVersion: OLDEST, minorVersion: 0, patchVersion: 0 };
    NSProcessInfo::processInfo().isOperatingSystemAtLeastVersion(want)
}

/// A line of memory: a buffer, the first byte, what lies there.
pub(super) type Place<'a> = (&'a Buffer, usize, Line);

fn data_type(d: DType) -> Result<MPSDataType, String> {
    Ok(match d {
        DType::F32 => MPSDataType::Float32,
        DType::F16 => MPSDataType::Float16,
        DType::BF16 => MPSDataType::BFloat16,
        DType::I64 => MPSDataType::Int64,
        DType::I32 => MPSDataType::Int32,
        DType::I16 => MPSDataType::Int16,
        DType::I8 => MPSDataType::Int8,
        DType::U64 => MPSDataType::UInt64,
        DType::U32 => MPSDataType::UInt32,
        DType::U16 => MPSDataType::UInt16,
        DType::U8 => MPSDataType::UInt8,
        DType::Bool => MPSDataType::Bool,
        other => return Err(format!("MPSGraph has no {other}")),
    })
}

fn numbers(v: &[usize]) -> Retained<NSArray<NSNumber>> {
    let all: Vec<Retained<NSNumber>> = v.iter().map(|n| NSNumber::new_usize(*n)).collect();
    NSArray::from_retained_slice(&all)
}

/// A compiled graph. What it reads and writes is handed over at each run.
pub(super) struct Graph {
    executable: Retained<MPSGraphExecutable>,
    /// For each feed and each target of the executable, in its order, the number of ours.
    feeds: Vec<usize>,
    targets: Vec<usize>,
}

impl Graph {
    /// Builds the calls of `program` and compiles them for `device`. The bytes of constants are copied.
    pub fn new(device: &Device, program: &Program, constants: &[HostData]) -> Result<Graph, String> {
        let mut b = Builder { graph: new_graph(), program, values: Vec::new() };
        for n in &program.nodes {
            let value = b.call(n, constants)?;
            b.values.push(value);
        }
        let placeholder = |i: usize| program.nodes.iter().position(|n| n.call == Call::Placeholder(i));
        let at = (0..program.feeds.len()).map(placeholder).collect::<Option<Vec<_>>>();
        let at = at.ok_or("a feed has no placeholder")?;
        let feeds: Vec<&MPSGraphTensor> = at.iter().map(|v| &*b.values[*v]).collect();
        let targets: Vec<&MPSGraphTensor> = program.results.iter().map(|v| &*b.values[*v]).collect();
        let typed = |v: &Value| {
            let n = &program.nodes[*v];
            let (shape, ty) = (numbers(&n.shape), data_type(n.dtype)?);
            // SAFETY: shape and type are those of the placeholder.
            Ok(unsafe {
                MPSGraphShapedType::initWithShape_dataType(MPSGraphShapedType::alloc(), Some(&shape), ty)
            })
        };
        let types = at.iter().map(typed).collect::<Result<Vec<_>, String>>()?;
        let dictionary = NSDictionary::from_retained_objects(&feeds, &types);
        // SAFETY: making a descriptor and setting its level. The lower level keeps all of the graph on the GPU: other units
        // compute in fewer digits.
        let wanted = unsafe { MPSGraphCompilationDescriptor::new() };
        unsafe { wanted.setOptimizationLevel(MPSGraphOptimization::Level0) };
        // SAFETY: feeds and targets are tensors of this graph, the types those of the feeds.
        let executable = unsafe {
            b.graph.compileWithDevice_feeds_targetTensors_targetOperations_compilationDescriptor(
                Some(&MPSGraphDevice::deviceWithMTLDevice(device)),
                &dictionary,
                &NSArray::from_slice(&targets),
                None,
                Some(&wanted),
            )
        };
        // SAFETY: asking the executable for the order of its arguments.
        let (fed, targeted) = unsafe { (executable.feedTensors(), executable.targetTensors()) };
        let (feeds, targets) = (order(fed, &feeds)?, order(targeted, &targets)?);
        Ok(Graph { executable, feeds, targets })
    }

    /// Encodes and commits a run. Gives the command buffers that hold it, as far as they can be known: MPSGraph may commit what
    /// it has encoded and go on with another buffer; those between the first and the last it does not show.
    pub fn commit(
        &self,
        queue: &Queue,
        feeds: &[Place],
        results: &[Place],
    ) -> Result<Vec<Committed>, String> {
        let arrays = |order: &[usize], all: &[Place]| {
            let one = |i: &usize| data(all.get(*i).ok_or("a place is not there")?);
            Ok::<_, String>(NSArray::from_retained_slice(
                &order.iter().map(one).collect::<Result<Vec<_>, String>>()?,
            ))
        };
        let (feeds, results) = (arrays(&self.feeds, feeds)?, arrays(&self.targets, results)?);
        // SAFETY: the queue is alive.
        let commands = unsafe { MPSCommandBuffer::commandBufferFromCommandQueue(queue) };
        // SAFETY: asking for the buffer that is filled now.
        let first = unsafe { commands.rootCommandBuffer() };
        // SAFETY: arguments stand in the executable's order, each of the shape and type that it was compiled for; the memory
        // behind them is held until the run has ended.
        unsafe {
            self.executable.encodeToCommandBuffer_inputsArray_resultsArray_executionDescriptor(
                &commands,
                &feeds,
                Some(&results),
                None,
            );
        }
        // SAFETY: as above.
        let last = unsafe { commands.rootCommandBuffer() };
        commands.commit();
        let same = Retained::as_ptr(&first) == Retained::as_ptr(&last);
        let all = if same { vec![last] } else { vec![first, last] };
        Ok(all.into_iter().map(Committed::committed).collect())
    }
}

fn new_graph() -> Retained<MPSGraph> {
    // SAFETY: making an empty graph.
    unsafe { MPSGraph::new() }
}

/// For each tensor of the executable's list the number of ours.
fn order(
    list: Option<Retained<NSArray<MPSGraphTensor>>>,
    ours: &[&MPSGraphTensor],
) -> Result<Vec<usize>, String> {
    let list = list.ok_or("a compiled graph does not tell its arguments")?;
    if list.len() != ours.len() {
        return Err(format!("a compiled graph has {} arguments, not {}", list.len(), ours.len()));
    }
    let number = |t: Retained<MPSGraphTensor>| ours.iter().position(|o| std::ptr::eq(*o, &*t));
    let all: Option<Vec<usize>> = list.to_vec().into_iter().map(number).collect();
    all.ok_or_else(|| "a compiled graph has other arguments".into())
}

/// Memory as an argument: a line that begins at a byte of its buffer.
fn data((buffer, offset, line): &Place) -> Result<Retained<MPSGraphTensorData>, String> {
    let (shape, ty) = (numbers(&[line.elements]), data_type(line.dtype)?);
    // SAFETY: the line lies inside the buffer (checked when the work was encoded), which is held until the run has ended; its
    // elements are of this type.
    unsafe {
        let wanted = MPSNDArrayDescriptor::descriptorWithDataType_shape(ty, &shape);
        wanted.setPreferPackedRows(true);
        let array =
            MPSNDArray::initWithBuffer_offset_descriptor(MPSNDArray::alloc(), buffer, *offset, &wanted);
        Ok(MPSGraphTensorData::initWithMPSNDArray(MPSGraphTensorData::alloc(), &array))
    }
}

/// A graph in the making.
struct Builder<'a> {
    graph: Retained<MPSGraph>,
    program: &'a Program,
    values: Vec<Retained<MPSGraphTensor>>,
}

impl Builder<'_> {
    /// Makes the call of a node.
    fn call(&self, n: &Node, constants: &[HostData]) -> Result<Retained<MPSGraphTensor>, String> {
        let (g, v, ty) = (&self.graph, |i: &Value| &*self.values[*i], data_type(n.dtype)?);
        let shape: Retained<MPSShape> = numbers(&n.shape);
        // SAFETY: tensors are of this graph, and made before; shapes, axes and types are those that the program was built
        // with, where they fit each other. The bytes of a constant are as many as its shape takes, and copied.
        Ok(unsafe {
            match &n.call {
                Call::Placeholder(_) => g.placeholderWithShape_dataType_name(Some(&shape), ty, None),
                Call::Constant(i) => {
                    let bytes = self.constant(*i, constants)?;
                    g.constantWithData_shape_dataType(&bytes, &shape, ty)
                }
                Call::Scalar(x) => g.constantWithScalar_shape_dataType(*x, &shape, ty),
                Call::Unary(op, x) => self.unary(*op, v(x)),
                Call::Binary(op, a, b) => self.binary(*op, v(a), v(b)),
                Call::Select(when, yes, no) => g
                    .selectWithPredicateTensor_truePredicateTensor_falsePredicateTensor_name(
                        v(when),
                        v(yes),
                        v(no),
                        None,
                    ),
                Call::Cast(x) => g.castTensor_toType_name(v(x), ty, None),
                Call::Reshape(x) => g.reshapeTensor_withShape_name(v(x), &shape, None),
                Call::Transpose(x, p) => g.transposeTensor_permutation_name(v(x), &numbers(p), None),
                Call::Slice(x, starts) => {
                    let ends: Vec<usize> = starts.iter().zip(&n.shape).map(|(s, n)| s + n).collect();
                    let steps = numbers(&vec![1; starts.len()]);
                    g.sliceTensor_starts_ends_strides_name(
                        v(x),
                        &numbers(starts),
                        &numbers(&ends),
                        &steps,
                        None,
                    )
                }
                Call::Broadcast(x) => g.broadcastTensor_toShape_name(v(x), &shape, None),
                Call::Concat(all, axis) => {
                    let all: Vec<&MPSGraphTensor> = all.iter().map(v).collect();
                    g.concatTensors_dimension_name(&NSArray::from_slice(&all), *axis as isize, None)
                }
                Call::Reverse(x, axes) => g.reverseTensor_axes_name(v(x), &numbers(axes), None),
                Call::Pad(x, before, after, padding) => {
                    let (mode, fill) = match padding {
                        Padding::Constant(fill) => (MPSGraphPaddingMode::Constant, *fill),
                        Padding::Reflect => (MPSGraphPaddingMode::Reflect, 0.0),
                        Padding::ClampToEdge => (MPSGraphPaddingMode::ClampToEdge, 0.0),
                    };
                    g.padTensor_withPaddingMode_leftPadding_rightPadding_constantValue_name(
                        v(x),
                        mode,
                        &numbers(before),
                        &numbers(after),
                        fill,
                        None,
                    )
                }
                Call::Reduce(how, x, axes) => self.reduce(*how, v(x), &numbers(axes)),
                Call::SoftMax(x, axis) => g.softMaxWithTensor_axis_name(v(x), *axis as isize, None),
                Call::MatrixMultiplication(a, b) => {
                    g.matrixMultiplicationWithPrimaryTensor_secondaryTensor_name(v(a), v(b), None)
                }
                Call::Gather(table, indices, axis) => g
                    .gatherWithUpdatesTensor_indicesTensor_axis_batchDimensions_name(
                        v(table),
                        v(indices),
                        *axis,
                        0,
                        None,
                    ),
                Call::Coordinate(axis) => g.coordinateAlongAxis_withShape_name(*axis as isize, &shape, None),
            }
        })
    }

    /// A copy of the bytes of constant `i`, as many as its line has.
    fn constant(&self, i: usize, constants: &[HostData]) -> Result<Retained<NSData>, String> {
        let line = self.program.constants.get(i).ok_or("a constant is not there")?;
        let bytes = constants.get(i).ok_or("the bytes of a constant are not there")?;
        let bytes: &[u8] = (**bytes).as_ref();
        match bytes.len() as u64 == line.bytes() {
            true => Ok(NSData::with_bytes(bytes)),
            false => Err(format!("a constant of {} bytes got {}", line.bytes(), bytes.len())),
        }
    }

    /// # Safety
    /// `x` is of this graph.
    unsafe fn unary(&self, op: Unary, x: &MPSGraphTensor) -> Retained<MPSGraphTensor> {
        let g = &self.graph;
        // SAFETY: the caller's.
        unsafe {
            match op {
                Unary::Identity => g.identityWithTensor_name(x, None),
                Unary::Exponent => g.exponentWithTensor_name(x, None),
                Unary::Logarithm => g.logarithmWithTensor_name(x, None),
                Unary::SquareRoot => g.squareRootWithTensor_name(x, None),
                Unary::Absolute => g.absoluteWithTensor_name(x, None),
                Unary::Negative => g.negativeWithTensor_name(x, None),
                Unary::Sin => g.sinWithTensor_name(x, None),
                Unary::Cos => g.cosWithTensor_name(x, None),
                Unary::Tan => g.tanWithTensor_name(x, None),
                Unary::Atan => g.atanWithTensor_name(x, None),
                Unary::Tanh => g.tanhWithTensor_name(x, None),
                Unary::Erf => g.erfWithTensor_name(x, None),
                Unary::Sigmoid => g.sigmoidWithTensor_name(x, None),
                Unary::Rint => g.rintWithTensor_name(x, None),
                Unary::Floor => g.floorWithTensor_name(x, None),
                Unary::Ceil => g.ceilWithTensor_name(x, None),
                Unary::Not => g.notWithTensor_name(x, None),
            }
        }
    }

    /// # Safety
    /// `a` and `b` are of this graph.
    unsafe fn binary(&self, op: Binary, a: &MPSGraphTensor, b: &MPSGraphTensor) -> Retained<MPSGraphTensor> {
        let g = &self.graph;
        // SAFETY: the caller's.
        unsafe {
            match op {
                Binary::Addition => g.additionWithPrimaryTensor_secondaryTensor_name(a, b, None),
                Binary::Subtraction => g.subtractionWithPrimaryTensor_secondaryTensor_name(a, b, None),
                Binary::Multiplication => g.multiplicationWithPrimaryTensor_secondaryTensor_name(a, b, None),
                Binary::Division => g.divisionWithPrimaryTensor_secondaryTensor_name(a, b, None),
                Binary::Maximum => {
                    g.maximumWithNaNPropagationWithPrimaryTensor_secondaryTensor_name(a, b, None)
                }
                Binary::Minimum => {
                    g.minimumWithNaNPropagationWithPrimaryTensor_secondaryTensor_name(a, b, None)
                }
                Binary::Equal => g.equalWithPrimaryTensor_secondaryTensor_name(a, b, None),
                Binary::NotEqual => g.notEqualWithPrimaryTensor_secondaryTensor_name(a, b, None),
                Binary::LessThan => g.lessThanWithPrimaryTensor_secondaryTensor_name(a, b, None),
                Binary::LessThanOrEqual => {
                    g.lessThanOrEqualToWithPrimaryTensor_secondaryTensor_name(a, b, None)
                }
                Binary::GreaterThan => g.greaterThanWithPrimaryTensor_secondaryTensor_name(a, b, None),
                Binary::GreaterThanOrEqual => {
                    g.greaterThanOrEqualToWithPrimaryTensor_secondaryTensor_name(a, b, None)
                }
                Binary::And => g.logicalANDWithPrimaryTensor_secondaryTensor_name(a, b, None),
                Binary::Or => g.logicalORWithPrimaryTensor_secondaryTensor_name(a, b, None),
                Binary::Xor => g.logicalXORWithPrimaryTensor_secondaryTensor_name(a, b, None),
            }
        }
    }

    /// # Safety
    /// `x` is of this graph and has these axes.
    unsafe fn reduce(
        &self,
        how: Reduction,
        x: &MPSGraphTensor,
        axes: &NSArray<NSNumber>,
    ) -> Retained<MPSGraphTensor> {
        let (g, axes) = (&self.graph, Some(axes));
        // SAFETY: the caller's.
        unsafe {
            match how {
                Reduction::Sum => g.reductionSumWithTensor_axes_name(x, axes, None),
                Reduction::Product => g.reductionProductWithTensor_axes_name(x, axes, None),
                Reduction::Maximum => g.reductionMaximumPropagateNaNWithTensor_axes_name(x, axes, None),
                Reduction::Minimum => g.reductionMinimumPropagateNaNWithTensor_axes_name(x, axes, None),
                Reduction::And => g.reductionAndWithTensor_axes_name(x, axes, None),
                Reduction::Or => g.reductionOrWithTensor_axes_name(x, axes, None),
            }
        }
    }
}

/// A matrix multiplication of MPS for these extents.
pub(super) struct Product {
    kernel: Retained<MPSMatrixMultiplication>,
    extents: MatrixProduct,
}

impl Product {
    pub fn new(device: &Device, extents: MatrixProduct) -> Product {
        let MatrixProduct { m, n, k, transposed, .. } = extents;
        // SAFETY: the device is alive; the numbers are extents.
        let kernel = unsafe {
            MPSMatrixMultiplication::initWithDevice_transposeLeft_transposeRight_resultRows_resultColumns_interiorColumns_alpha_beta(
                MPSMatrixMultiplication::alloc(),
                device,
                false,
                transposed,
                m,
                n,
                k,
                1.0,
                0.0,
            )
        };
        Product { kernel, extents }
    }

    /// Encodes a run into a command buffer that has no encoder open.
    pub fn encode(&self, commands: &ProtocolObject<dyn MTLCommandBuffer>, places: [(&Buffer, usize); 3]) {
        let MatrixProduct { m, n, k, transposed, row_bytes } = self.extents;
        let right = if transposed { (n, k) } else { (k, n) };
        let extents = [(m, k), right, (m, n)];
        let matrix = |i: usize| {
            let ((rows, columns), (buffer, offset)) = (extents[i], places[i]);
            // SAFETY: the matrix lies inside the buffer (checked when the work was encoded), which is held until the run has
            // ended; its elements are f32.
            unsafe {
                let wanted = MPSMatrixDescriptor::matrixDescriptorWithRows_columns_rowBytes_dataType(
                    rows,
                    columns,
                    row_bytes[i] as usize,
                    MPSDataType::Float32,
                );
                MPSMatrix::initWithBuffer_offset_descriptor(MPSMatrix::alloc(), buffer, offset, &wanted)
            }
        };
        // SAFETY: the matrices have the extents that the kernel was made for; result and operands do not overlap.
        unsafe {
            self.kernel.encodeToCommandBuffer_leftMatrix_rightMatrix_resultMatrix(
                commands,
                &matrix(0),
                &matrix(1),
                &matrix(2),
            );
        }
    }
}

/// Work of the vendor's, compiled.
pub(super) enum Work {
    Graph(Graph, Arc<Program>),
    Product(Product),
}

// SAFETY: the bindings state that executables may be used from any thread; the kernel of a product, which keeps what it was
// made with and nothing of a run, is used under the driver's lock alone.
unsafe impl Send for Work {}
// SAFETY: as above.
unsafe impl Sync for Work {}

impl Work {
    /// Compiles it.
    pub fn new(device: &Device, work: &VendorWork) -> Result<Work, String> {
        Ok(match work {
            VendorWork::Graph(program, constants) => {
                Work::Graph(Graph::new(device, program, constants)?, program.clone())
            }
            VendorWork::Product(extents) => Work::Product(Product::new(device, *extents)),
        })
    }
}
