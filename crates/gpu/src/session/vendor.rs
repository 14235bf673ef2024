//! The segments of a run of which the vendor's graph compiler and library do a part: the plan at the run's sizes, its pieces
//! bound to the session's memory.

use std::sync::Arc;

use super::{Outcome, Session};
use crate::driver::SegmentId;
use crate::error::GpuError;
use crate::graphs::{Binding, GraphPiece, Matrix, Piece, Plan, Product};
use crate::launch::{MatrixProduct, Span, VendorCall, VendorWork};
use crate::memory::Buffer;

impl Session {
    /// What of a run at the sizes set is done by the vendor's graph compiler and library, and what by our own kernels.
    ///
    /// # Errors
    /// Sizes that do not fit; [`GpuError::NotAGraph`].
    pub fn plan(&mut self) -> Result<Plan, GpuError> {
        self.bind()?;
        let outcome = self.segments.iter().find(|e| e.ids == self.current).map(|e| e.key.0.clone());
        self.plan_of(&outcome.unwrap_or_default())
    }

    fn plan_of(&self, outcome: &Outcome) -> Result<Plan, GpuError> {
        let (symbols, sizes) = (self.exe.tables.sizes.symbols(), self.sizes.next());
        let bind = |n: &frit_ir::Sym| symbols.iter().position(|(s, ..)| s == n).map(|i| sizes[i]);
        let choice = |i: usize| outcome.get(i).map_or(0, |(candidate, _)| *candidate as usize);
        self.exe.plan(&bind, &choice, &|region, buffer| self.place(region, buffer).bytes)
    }

    /// A segment for each piece of the plan, and the memory for staged results. After a failure none is left.
    pub(super) fn encode_plan(
        &self,
        outcome: &Outcome,
    ) -> Result<(Vec<SegmentId>, Option<Buffer>), GpuError> {
        let plan = self.plan_of(outcome)?;
        let staging = plan.graphs().map(|g| g.staging).max().filter(|n| *n > 0);
        let staging = staging.map(|n| Buffer::new(&self.exe.device, "results of graphs", n)).transpose()?;
        let (mut ids, driver) = (Vec::new(), self.exe.device.driver());
        for piece in plan.pieces {
            let id = match piece {
                Piece::Steps(steps) => self.encode_steps(outcome, steps),
                Piece::Graph(g) => {
                    self.graph(*g, staging.as_ref()).and_then(|call| driver.encode_vendor(&call))
                }
                Piece::Product(p) => driver.encode_vendor(&self.product(&p)),
            };
            match id {
                Ok(id) => ids.push(id),
                Err(e) => {
                    ids.into_iter().for_each(|id| driver.release(id));
                    return Err(e);
                }
            }
        }
        Ok((ids, staging))
    }

    fn graph(&self, g: GraphPiece, staging: Option<&Buffer>) -> Result<VendorCall, GpuError> {
        let span = |b: &Binding| {
            let place = self.place(b.region, b.buffer);
            Span { offset: place.offset + b.offset, bytes: b.line.bytes(), ..place }
        };
        let own = |b: &Binding| staging.zip(b.staged).map(|(s, at)| s.span(at, b.line.bytes()));
        let data =
            |n: &u32| self.exe.constant(*n).ok_or_else(|| GpuError::WeightMissing(format!("weight {n}")));
        let constants = g.constants.iter().map(data).collect::<Result<_, _>>()?;
        Ok(VendorCall {
            step: g.steps.start as u32,
            reads: g.feeds.iter().map(span).collect(),
            writes: g.results.iter().map(|b| own(b).unwrap_or_else(|| span(b))).collect(),
            copies: g.results.iter().filter_map(|b| Some((own(b)?, span(b)))).collect(),
            work: VendorWork::Graph(Arc::new(g.program), constants),
        })
    }

    fn product(&self, p: &Product) -> VendorCall {
        let span = |m: &Matrix| {
            let place = self.place(m.region, m.buffer);
            Span { offset: place.offset + m.offset, bytes: m.bytes(), ..place }
        };
        let product = MatrixProduct {
            m: p.result.rows,
            n: p.result.columns,
            k: p.left.columns,
            transposed: p.transposed,
            row_bytes: [p.left.row_bytes, p.right.row_bytes, p.result.row_bytes],
        };
        let (reads, writes) = (vec![span(&p.left), span(&p.right)], vec![span(&p.result)]);
        VendorCall { step: p.step as u32, work: VendorWork::Product(product), reads, writes, copies: vec![] }
    }
}
