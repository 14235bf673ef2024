//! Frequencies of rotary position embeddings for contexts longer than a model was trained on. Plain functions for model
//! builders; the op itself is in `rotary`.

use std::f64::consts::PI;

use frit_ir::op::OpError;

/// How a model stretches its positions.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum RopeScaling {
    /// Not at all: frequency i is base^(−2i/dims).
    #[default]
    None,
    /// Every frequency divided by `factor` (Chen et al., "Extending Context Window of Large Language Models via Positional
    /// Interpolation", 2023).
    Linear {
        /// Extension of the context.
        factor: f64,
    },
    /// The base multiplied by factor^(dims/(dims−2)), so that the lowest frequency is divided by `factor` and the highest
    /// stays ("NTK-aware" scaling; Peng et al., "YaRN", 2023, section 3.1).
    Ntk {
        /// Extension of the context.
        factor: f64,
    },
    /// Low frequencies divided, high ones kept, a ramp between, and an attention factor (Peng et al., "YaRN: Efficient
    /// Context Window Extension of Large Language Models", 2023, sections 3.2 and 3.4).
    Yarn(Yarn),
    /// Long wavelengths divided, short ones kept, a ramp between (the released Llama 3.1 configuration).
    Llama3 {
        /// Extension of the context.
        factor: f64,
        /// Wavelengths above original_context / low_freq_factor are divided.
        low_freq_factor: f64,
        /// Wavelengths below original_context / high_freq_factor are kept.
        high_freq_factor: f64,
        /// Context of the training.
        original_context: f64,
    },
    /// Frequency i divided by divisor i, as model files store it (one for each pair).
    Divisors(Vec<f32>),
}

/// Parameters of YaRN.
#[derive(Clone, Debug, PartialEq)]
pub struct Yarn {
    /// Extension of the context.
    pub factor: f64,
    /// Context of the training.
    pub original_context: f64,
    /// Turns within the original context above which a frequency is kept (usually 32).
    pub beta_fast: f64,
    /// Turns below which a frequency is divided in full (usually 1).
    pub beta_slow: f64,
    /// Whether the ends of the ramp are rounded outwards to whole pairs (usual).
    pub truncate: bool,
    /// The attention factor, in place of the formula. It is the final factor: nothing else is multiplied to it.
    pub attention_factor: Option<f64>,
    /// With `mscale_all_dim`: the attention factor is the formula at `mscale` over the formula at `mscale_all_dim`.
    pub mscale: Option<f64>,
    /// See `mscale`.
    pub mscale_all_dim: Option<f64>,
}

/// The inverse frequencies (dims/2 of them, for the `rotary` op) and the attention factor, which is the op's `factor`
/// attribute and 1 for every scaling but YaRN.
///
/// # Errors
/// `dims` odd or 0, a base or parameter that is not positive and finite, a list of divisors of another length.
pub fn inverse_frequencies(
    dims: usize,
    base: f64,
    scaling: &RopeScaling,
) -> Result<(Vec<f32>, f64), OpError> {
    if dims == 0 || !dims.is_multiple_of(2) {
        return Err(OpError::Value(format!(
            "rotary dimensions are {dims}; they must be even and at least 2"
        )));
    }
    check(scaling, &[("base", base)])?;
    let plain = |base: f64| move |i: usize| base.powf(-((2 * i) as f64) / dims as f64);
    let table = |f: &dyn Fn(usize) -> f64| (0..dims / 2).map(|i| f(i) as f32).collect::<Vec<f32>>();
    let own = plain(base);
    match scaling {
        RopeScaling::None => Ok((table(&own), 1.0)),
        RopeScaling::Linear { factor } => {
            check(scaling, &[("factor", *factor)])?;
            Ok((table(&|i| own(i) / factor), 1.0))
        }
        RopeScaling::Ntk { factor } => {
            check(scaling, &[("factor", *factor)])?;
            if dims == 2 {
                return Err(OpError::Value("NTK scaling needs at least 4 rotary dimensions".into()));
            }
            Ok((table(&plain(base * factor.powf(dims as f64 / (dims as f64 - 2.0)))), 1.0))
        }
        RopeScaling::Yarn(y) => {
            y.check(scaling)?;
            let (low, high) = y.ramp(dims, base);
            let kept = |i: usize| 1.0 - ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
            let f = |i: usize| own(i) / y.factor * (1.0 - kept(i)) + own(i) * kept(i);
            Ok((table(&f), y.attention()))
        }
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
            let (low, high, context) = (*low_freq_factor, *high_freq_factor, *original_context);
            let all = [("factor", *factor), ("low_freq_factor", low), ("original_context", context)];
            check(scaling, &all)?;
            check(scaling, &[("high_freq_factor − low_freq_factor", high - low)])?;
            let kept = |f: f64| ((context * f / (2.0 * PI) - low) / (high - low)).clamp(0.0, 1.0);
            Ok((table(&|i| own(i) * kept(own(i)) + own(i) / factor * (1.0 - kept(own(i)))), 1.0))
        }
        RopeScaling::Divisors(d) => {
            if d.len() != dims / 2 {
                let why =
                    format!("{} rotary divisors given for {dims} dimensions; it takes {}", d.len(), dims / 2);
                return Err(OpError::Value(why));
            }
            d.iter().try_for_each(|v| check(scaling, &[("divisor", f64::from(*v))]))?;
            Ok((table(&|i| own(i) / f64::from(d[i])), 1.0))
        }
    }
}

/// Requires every value to be positive and finite.
fn check(scaling: &RopeScaling, all: &[(&str, f64)]) -> Result<(), OpError> {
    match all.iter().find(|(_, v)| !(*v > 0.0 && v.is_finite())) {
        Some((name, v)) => {
            let kind = match scaling {
                RopeScaling::None => "no",
                RopeScaling::Linear { .. } => "linear",
                RopeScaling::Ntk { .. } => "NTK",
                RopeScaling::Yarn(_) => "YaRN",
                RopeScaling::Llama3 { .. } => "Llama 3",
                RopeScaling::Divisors(_) => "tabled",
            };
            Err(OpError::Value(format!(
                "rotary positions with {kind} scaling: {name} is {v}; it must be positive and finite"
            )))
        }
        None => Ok(()),
    }
}

impl Yarn {
    fn check(&self, scaling: &RopeScaling) -> Result<(), OpError> {
        check(
            scaling,
            &[
                ("factor", self.factor),
                ("original_context", self.original_context),
                ("beta_fast", self.beta_fast),
                ("beta_slow", self.beta_slow),
                ("attention_factor", self.attention_factor.unwrap_or(1.0)),
                ("mscale", self.mscale.filter(|v| *v != 0.0).unwrap_or(1.0)),
                ("mscale_all_dim", self.mscale_all_dim.filter(|v| *v != 0.0).unwrap_or(1.0)),
            ],
        )
    }

    /// The pairs between which kept and divided frequencies are mixed: the pair whose frequency makes r turns in the
    /// original context is dims·ln(context / (2πr)) / (2·ln base).
    fn ramp(&self, dims: usize, base: f64) -> (f64, f64) {
        let d = dims as f64;
        let pair = |turns: f64| d * (self.original_context / (turns * 2.0 * PI)).ln() / (2.0 * base.ln());
        let (low, high) = (pair(self.beta_fast), pair(self.beta_slow));
        let (low, high) = if self.truncate { (low.floor(), high.ceil()) } else { (low, high) };
        let (low, high) = (low.max(0.0), high.min(d - 1.0));
        // A ramp of no width would divide by zero.
        if low == high { (low, high + 0.001) } else { (low, high) }
    }

    /// 0.1·m·ln(factor) + 1, unless it is given.
    fn attention(&self) -> f64 {
        let formula = |m: f64| if self.factor <= 1.0 { 1.0 } else { 0.1 * m * self.factor.ln() + 1.0 };
        let given = |v: Option<f64>| v.filter(|v| *v != 0.0);
        match (self.attention_factor, given(self.mscale), given(self.mscale_all_dim)) {
            (Some(v), _, _) => v,
            (None, Some(m), Some(all)) => formula(m) / formula(all),
            _ => formula(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yarn() -> Yarn {
        Yarn {
            factor: 4.0,
            original_context: 4096.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: true,
            attention_factor: None,
            mscale: None,
            mscale_all_dim: None,
        }
    }

    fn close(a: f32, b: f64) {
        assert!((f64::from(a) / b - 1.0).abs() < 1e-6, "{a} is not {b}");
    }

    #[test]
    fn linear_and_ntk() {
        let (plain, factor) = inverse_frequencies(8, 10000.0, &RopeScaling::None).unwrap();
        assert_eq!((plain.len(), factor), (4, 1.0));
        for (f, want) in plain.iter().zip([1.0, 0.1, 0.01, 0.001]) {
            close(*f, want);
        }
        let (linear, _) = inverse_frequencies(8, 10000.0, &RopeScaling::Linear { factor: 4.0 }).unwrap();
        close(linear[1], 0.025);
        // The first frequency stays, the last is divided by the factor.
        let (ntk, _) = inverse_frequencies(8, 10000.0, &RopeScaling::Ntk { factor: 4.0 }).unwrap();
        close(ntk[0], 1.0);
        close(ntk[3], 0.00025);
    }

    #[test]
    fn yarn_mixes_between_the_ends() {
        let (f, factor) = inverse_frequencies(128, 10000.0, &RopeScaling::Yarn(yarn())).unwrap();
        let own = |i: usize| 10000f64.powf(-((2 * i) as f64) / 128.0);
        // 64·ln(4096/(64π))/ln 10000 = 20.94 and 64·ln(4096/(2π))/ln 10000 = 45.03: the ramp runs from 20 to 46.
        close(f[20], own(20));
        close(f[33], own(33) * 0.5 + own(33) / 4.0 * 0.5);
        close(f[46], own(46) / 4.0);
        close(f[63], own(63) / 4.0);
        assert!((factor - 1.138_629_436).abs() < 1e-9, "{factor}");
    }

    #[test]
    fn an_explicit_attention_factor_replaces_the_formula() {
        let mut y =
            Yarn { attention_factor: Some(1.5), mscale: Some(2.0), mscale_all_dim: Some(1.0), ..yarn() };
        let factor = |y: &Yarn| inverse_frequencies(64, 1e4, &RopeScaling::Yarn(y.clone())).map(|r| r.1);
        assert_eq!(factor(&y), Ok(1.5));
        y.attention_factor = None;
        let want = (0.2 * 4f64.ln() + 1.0) / (0.1 * 4f64.ln() + 1.0);
        assert_eq!(factor(&y), Ok(want));
        y.mscale = Some(1.0);
        assert_eq!(factor(&y), Ok(1.0));
        assert_eq!(factor(&Yarn { factor: 1.0, ..yarn() }), Ok(1.0));
    }

    #[test]
    fn llama3_keeps_short_wavelengths() {
        let s = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 8192.0,
        };
        let (f, factor) = inverse_frequencies(128, 500_000.0, &s).unwrap();
        let own = |i: usize| 500_000f64.powf(-((2 * i) as f64) / 128.0);
        assert_eq!(factor, 1.0);
        // Wavelengths: pair 28 has 1956 (below 2048), pair 29 2401, pair 36 10094 (above 8192).
        close(f[28], own(28));
        let smooth = (8192.0 * own(29) / (2.0 * PI) - 1.0) / 3.0;
        close(f[29], own(29) * smooth + own(29) / 8.0 * (1.0 - smooth));
        close(f[36], own(36) / 8.0);
        close(f[63], own(63) / 8.0);
    }

    #[test]
    fn bad_parameters_are_errors() {
        assert!(inverse_frequencies(7, 1e4, &RopeScaling::None).is_err());
        assert!(inverse_frequencies(8, f64::NAN, &RopeScaling::None).is_err());
        assert!(inverse_frequencies(8, 1e4, &RopeScaling::Linear { factor: 0.0 }).is_err());
        assert!(inverse_frequencies(8, 1e4, &RopeScaling::Divisors(vec![1.0; 3])).is_err());
        let e = inverse_frequencies(8, 1e4, &RopeScaling::Yarn(Yarn { beta_fast: -1.0, ..yarn() }));
        assert!(e.unwrap_err().to_string().contains("beta_fast"));
        let (f, _) = inverse_frequencies(4, 1e4, &RopeScaling::Divisors(vec![1.0, 2.0])).unwrap();
        close(f[1], 0.005);
    }
}
