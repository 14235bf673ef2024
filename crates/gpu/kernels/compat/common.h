/* What all dialects share; comes after the dialect's own header. */

/* One operand: where it starts in its buffer, its extents and strides in elements. */
struct frit_operand {
    u64 offset;
    IDX len;
    IDX last;
    IDX rows;
    i32 rank;
    /* Whether elements lie in row-major order without gaps. */
    i32 dense;
    /* Whether rows of the last dimension begin at multiples of 16 bytes and have no gaps. */
    i32 aligned;
    IDX dim[8];
    IDX stride[8];
};

#define GLOBAL_ID ((IDX)GROUP_ID * GROUP_SIZE + LOCAL_ID)
#define GLOBAL_COUNT ((IDX)GROUP_COUNT * GROUP_SIZE)

#define HAS(x) HAS_##x
#define TYPE(x) TYPE_##x
#define VALUE(x) VALUE_##x
#define IS(x, t) (DTYPE_##x == DTYPE_##t)
#define UNIT_ELEMENTS(x) UNIT_ELEMENTS_##x
#define UNIT_BYTES(x) UNIT_BYTES_##x
#define PTR(x) frit_##x
#define LOAD(x, i) LOAD_##x(i)
#define STORE(x, i, v) STORE_##x(i, v)
#define ROUNDED(x, v) ROUNDED_##x(v)
#define AT(x, i) AT_##x(i)
#define ROW(x, r) ROW_##x(r)
#define LOWEST(x) LOWEST_##x
#define HIGHEST(x) HIGHEST_##x
#define OPERAND(x) (&P->op_##x)
#define RANK(x) (P->op_##x.rank)
#define DIM(x, d) (P->op_##x.dim[d])
#define STRIDE(x, d) (P->op_##x.stride[d])
#define LEN(x) (P->op_##x.len)
#define LAST(x) (P->op_##x.last)
#define ROWS(x) (P->op_##x.rows)
#define COUNT(list) COUNT_##list
#define EACH(list, M) EACH_##list(M)
#define PARAM(name) PARAM_##name
#define COUNT_OF(g) COUNT_OF_##g
#define EACH_OF(g, M) EACH_OF_##g(M)
#define DIM_OF(g, d) DIM_OF_##g(d)
#define APPLY_OF(g, i, V) APPLY_OF_##g(i, V)
#define EVAL_OF(g, INDEX, V) EVAL_OF_##g(INDEX, V)
#define EXTRAS_OF(g, M) EXTRAS_OF_##g(M)
#define RESULTS_OF(g, M) RESULTS_OF_##g(M)

/* Element number i in row-major order of the extents. */
HELPER IDX frit_at(CONSTANT struct frit_operand *o, IDX i) {
    if (o->dense) return i;
    IDX at = 0;
    for (int d = o->rank - 1; d > 0; d--) {
        IDX q = i / o->dim[d];
        at += (i - q * o->dim[d]) * o->stride[d];
        i = q;
    }
    return at + i * o->stride[0];
}

/* Element of `o`, which broadcasts to the extents of `out`, for element i of that. */
HELPER IDX frit_broadcast(CONSTANT struct frit_operand *o, CONSTANT struct frit_operand *out, IDX i) {
    IDX at = 0;
    if (o->dense && o->len == out->len) return i;
    for (int d = out->rank - 1, own = o->rank - 1; own >= 0; d--, own--) {
        const IDX q = i / out->dim[d];
        if (o->dim[own] != 1) at += (i - q * out->dim[d]) * o->stride[own];
        i = q;
    }
    return at;
}

/* First element of row r. */
HELPER IDX frit_row(CONSTANT struct frit_operand *o, IDX r) {
    if (o->dense) return r * o->last;
    IDX at = 0;
    for (int d = o->rank - 2; d >= 0; d--) {
        IDX q = r / o->dim[d];
        at += (r - q * o->dim[d]) * o->stride[d];
        r = q;
    }
    return at;
}

/* Storage. A bfloat16 is the upper half of a float; rounding is to the nearest even, NaN stays NaN. */
#define bf16_to_f32(u) AS_FLOAT((u32)(u) << 16)
HELPER u16 f32_to_bf16(float v) {
    u32 u = AS_UINT(v);
    if (v != v) return (u16)((u >> 16) | 0x40);
    return (u16)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

/* A double or integer on its way to 16 bits: a float that rounds to what the double rounds to (cut off, the last bit set). */
#if HAS_F64
HELPER float frit_odd(double v) {
    const float near = (float)v;
    const double back = near;
    if (back == v || v != v) return near;
    const u32 u = AS_UINT(near);
    return AS_FLOAT((fabs(back) > fabs(v) ? u - 1 : u) | 1);
}
#define FLOAT_FOR_HALF(v) frit_odd((double)(v))
#else
/* Without double: integers of more than 24 bits are rounded twice. */
#define FLOAT_FOR_HALF(v) ((float)(v))
#endif

#define load_raw(p, i) ((p)[i])
#define load_f16(p, i) f16_to_f32((p)[i])
#define load_bf16(p, i) bf16_to_f32((p)[i])
#define load_bool(p, i) ((u8)((p)[i] != 0))
#define store_raw(p, i, v) ((p)[i] = (v))
#define store_f16(p, i, v) ((p)[i] = f32_to_f16(v))
#define store_bf16(p, i, v) ((p)[i] = f32_to_bf16(v))
#define store_bool(p, i, v) ((p)[i] = (u8)((v) != 0))
#define rounded_raw(v) (v)
#define rounded_f16(v) f16_to_f32(f32_to_f16(v))
#define rounded_bf16(v) bf16_to_f32(f32_to_bf16(v))
#define rounded_bool(v) ((u8)((v) != 0))

/* Asks for `n` elements from element i on, so many lanes together, where the dialect can (HAS_PREFETCH). */
#define PREFETCH_ROW(x, i, n, lane, lanes) \
    for (u64 frit_b = (u64)(lane) * 128; frit_b < (u64)(n) / UNIT_ELEMENTS(x) * UNIT_BYTES(x); frit_b += (lanes) * 128) \
        frit_prefetch((GLOBAL const u8 *)PTR(x) + (u64)(i) / UNIT_ELEMENTS(x) * UNIT_BYTES(x) + frit_b)

/* Eight consecutive elements from element i on as floats, zeros from element i + left on. */
#define LOAD8(x, i, left, y) LOAD8_##x(i, left, y)
#define LOAD8_ELEMENTS(io, p, i, left, y) \
    do { \
        const IDX frit_i = (i), frit_left = (left); \
        for (int frit_e = 0; frit_e < 8; frit_e++) \
            (y)[frit_e] = frit_e < frit_left ? load_##io(p, frit_i + frit_e) : 0.0f; \
    } while (0)

/* The same for elements that are all there, where ALIGNED(x) and i is a multiple of 8 in its row: by words. */
#define ALIGNED(x) (P->op_##x.aligned)
#define OCTET(x, i, y) OCTET_##x(i, y)
#define OCTET_ELEMENTS(io, p, i, y) frit_octet_##io((p) + (i), y)
#define OCTET_BLOCK(decode, elements, bytes, p, i, y) \
    decode((p) + (u64)((i) / (elements)) * (bytes), (int)((i) % (elements)), y)
HELPER void frit_octet_raw(GLOBAL const float *p, PRIVATE float *y) {
    const float4 a = ((GLOBAL const float4 *)p)[0], b = ((GLOBAL const float4 *)p)[1];
    y[0] = a.x, y[1] = a.y, y[2] = a.z, y[3] = a.w, y[4] = b.x, y[5] = b.y, y[6] = b.z, y[7] = b.w;
}
#define OCTET_HALVES(name, to_f32) \
    HELPER void name(GLOBAL const u16 *p, PRIVATE float *y) { \
        const uint4 w = *(GLOBAL const uint4 *)p; \
        y[0] = to_f32(w.x & 0xffff), y[1] = to_f32(w.x >> 16), y[2] = to_f32(w.y & 0xffff), y[3] = to_f32(w.y >> 16); \
        y[4] = to_f32(w.z & 0xffff), y[5] = to_f32(w.z >> 16), y[6] = to_f32(w.w & 0xffff), y[7] = to_f32(w.w >> 16); \
    }
OCTET_HALVES(frit_octet_f16, f16_to_f32)
OCTET_HALVES(frit_octet_bf16, bf16_to_f32)
/* The same of a block format: `left` is a multiple of 8. */
#define LOAD8_BLOCK(decode, elements, bytes, p, i, left, y) \
    do { \
        const IDX frit_i = (i); \
        if ((left) > 0) decode((p) + (u64)(frit_i / (elements)) * (bytes), (int)(frit_i % (elements)), y); \
        else for (int frit_e = 0; frit_e < 8; frit_e++) (y)[frit_e] = 0.0f; \
    } while (0)

/* Words of block formats: every block begins at a multiple of the powers of two in its length, up to 16. */
#define READ_U16(p, i) ((u32) * (GLOBAL const u16 *)((p) + (i)))
#define READ_U32(p, i) (*(GLOBAL const u32 *)((p) + (i)))

/* A float to an integer type: truncated, saturated, 0 for NaN. lo and hi are powers of two (or 0) in the float's type. */
#define SATURATE(T, x, lo, hi, least, most) ((x) != (x) ? (T)0 : (x) <= (lo) ? (least) : (x) >= (hi) ? (most) : (T)(x))

#if HAS_F64
/* Functions of double have the same names in every language that has the type. */
#define FMA_f64(a, b, c) fma((double)(a), (double)(b), (double)(c))
#define exp_f64(x) exp((double)(x))
#define log_f64(x) log((double)(x))
#define log1p_f64(x) log1p((double)(x))
#define sqrt_f64(x) sqrt((double)(x))
#define sin_f64(x) sin((double)(x))
#define cos_f64(x) cos((double)(x))
#define tan_f64(x) tan((double)(x))
#define atan_f64(x) atan((double)(x))
#define tanh_f64(x) tanh((double)(x))
#define erf_f64(x) erf((double)(x))
#define erfc_f64(x) erfc((double)(x))
#define abs_f64(x) fabs((double)(x))
#define floor_f64(x) floor((double)(x))
#define ceil_f64(x) ceil((double)(x))
#define round_f64(x) rint((double)(x))
#define pow_f64(a, b) pow((double)(a), (double)(b))
#define fmod_f64(a, b) fmod((double)(a), (double)(b))
#endif

#ifdef OWN_ERF
/* ln(1 + x) by ln(u) x / (u - 1) with u = 1 + x as it is rounded (Kahan's correction). */
HELPER float log1p_f32(float x) {
    const float u = 1.0f + x;
    return u == 1.0f ? x : u == AS_FLOAT(0x7f800000) ? u : log_f32(u) * (x / (u - 1.0f));
}
/* 1 - erf(x) for x >= 0: exp(-x^2) P / (1 + 2x), P in (x - 3) / (x + 3) (Shepherd and Laframboise 1981). */
HELPER float frit_erfc(float x) {
    if (x > 11.0f) return 0.0f;
    const float t = (x - 3.0f) / (x + 3.0f), square = x * x;
    float p = 3.3348583e-5f;
    p = FMA(p, t, 1.2685973e-4f);
    p = FMA(p, t, -1.2778008e-4f);
    p = FMA(p, t, -7.913684e-4f);
    p = FMA(p, t, 0.0018943956f);
    p = FMA(p, t, 0.0025343389f);
    p = FMA(p, t, -0.0237708916f);
    p = FMA(p, t, 0.068307208f);
    p = FMA(p, t, -0.1192737f);
    p = FMA(p, t, 0.12964521f);
    p = FMA(p, t, -0.047562291f);
    p = FMA(p, t, -0.13562111f);
    p = FMA(p, t, 1.2530081f);
    /* The second factor is what x * x lost by rounding. */
    return exp_f32(-square) * exp_f32(-FMA(x, x, -square)) * p / (1.0f + 2.0f * x);
}
HELPER float erfc_f32(float x) { return x >= 0 ? frit_erfc(x) : x < 0 ? 2.0f - frit_erfc(-x) : x; }
HELPER float erf_f32(float x) {
    const float z = x * x;
    float p = -9.667045e-6f;
    p = FMA(p, z, 1.1265959e-4f);
    p = FMA(p, z, -8.4840804e-4f);
    p = FMA(p, z, 0.0052210318f);
    p = FMA(p, z, -0.026865431f);
    p = FMA(p, z, 0.11283782f);
    p = FMA(p, z, -0.37612638f);
    p = FMA(p, z, 1.1283792f);
    return z < 1.0f ? x * p : x > 0 ? 1.0f - frit_erfc(x) : x < 0 ? frit_erfc(-x) - 1.0f : x;
}
#endif

#define FLOAT_FUNCTIONS(T, s, SQRT_HALF, SQRT_2_OVER_PI, TANH_3) \
    HELPER T max_##s(T a, T b) { return a != a ? a : b != b ? b : a > b ? a : b; } \
    HELPER T min_##s(T a, T b) { return a != a ? a : b != b ? b : a < b ? a : b; } \
    HELPER T sigmoid_##s(T x) { \
        T e = exp_##s(-abs_##s(x)); \
        return (x >= 0 ? (T)1 : e) / (1 + e); \
    } \
    HELPER T silu_##s(T x) { return x < (T)-1000 ? (T)0 : x * sigmoid_##s(x); } \
    HELPER T gelu_##s(T x) { return x < (T)-1000 ? (T)0 : (T)0.5 * x * erfc_##s(-x * SQRT_HALF); } \
    HELPER T gelu_tanh_##s(T x) { \
        /* 1 + tanh(u) = 2 sigmoid(2u), which keeps its digits where tanh is near -1. */ \
        T u = SQRT_2_OVER_PI * (x + TANH_3 * x * x * x); \
        return x < (T)-1000 ? (T)0 : x * sigmoid_##s(2 * u); \
    } \
    HELPER T softplus_##s(T x) { return x != x ? x : max_##s(x, 0) + log1p_##s(exp_##s(-abs_##s(x))); } \
    HELPER T mod_##s(T a, T b) { \
        T r = fmod_##s(a, b); \
        return r != 0 && (r < 0) != (b < 0) ? r + b : r; \
    }

FLOAT_FUNCTIONS(float, f32, 0.70710678118654752f, 0.79788456080286536f, 0.044715f)
#if HAS_F64
FLOAT_FUNCTIONS(double, f64, 0.70710678118654752, 0.79788456080286536, 0.044715)
#endif

/* Integers wrap. Division and remainder by 0 give 0; the remainder has the divisor's sign. */
#define INT_POW(T, W, s) \
    HELPER T frit_pow_##s(T a, u64 e) { \
        W base = (W)a, r = 1; \
        for (; e > 0; e >>= 1) { \
            if (e & 1) r = r * base; \
            base = base * base; \
        } \
        return (T)r; \
    }
#define SIGNED_FUNCTIONS(T, W, s) \
    INT_POW(T, W, s) \
    HELPER T div_##s(T a, T b) { return b == 0 ? (T)0 : b == -1 ? (T)(0 - (W)a) : (T)(a / b); } \
    HELPER T mod_##s(T a, T b) { \
        T r = b == 0 || b == -1 ? (T)0 : (T)(a % b); \
        return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r; \
    } \
    HELPER T pow_##s(T a, T b) { \
        if (b < 0) return a == 1 ? (T)1 : a == -1 ? (T)(b & 1 ? -1 : 1) : (T)0; \
        return frit_pow_##s(a, (u64)b); \
    }
#define UNSIGNED_FUNCTIONS(T, W, s) \
    INT_POW(T, W, s) \
    HELPER T div_##s(T a, T b) { return b == 0 ? (T)0 : (T)(a / b); } \
    HELPER T mod_##s(T a, T b) { return b == 0 ? (T)0 : (T)(a % b); } \
    HELPER T pow_##s(T a, T b) { return frit_pow_##s(a, (u64)b); }

SIGNED_FUNCTIONS(i8, u32, i8)
SIGNED_FUNCTIONS(i16, u32, i16)
SIGNED_FUNCTIONS(i32, u32, i32)
SIGNED_FUNCTIONS(i64, u64, i64)
UNSIGNED_FUNCTIONS(u8, u32, u8)
UNSIGNED_FUNCTIONS(u16, u32, u16)
UNSIGNED_FUNCTIONS(u32, u32, u32)
UNSIGNED_FUNCTIONS(u64, u64, u64)

#define ADD(a, b) ((a) + (b))

/* Code times scale of a value whose block has the largest magnitude `most`: the op `quantize`. */
HELPER float frit_quantized(float v, float most, int bits) {
    const float largest = bits == 8 ? 127.0f : 32385.0f, d = most / largest;
    const float q = min_f32(max_f32(round_f32(v / d), -largest), largest);
    return d == 0 ? 0.0f : q * d;
}

/* Folds a shared array of one value for each item of the group into its first place, in a fixed order. The group must
   meet (BARRIER) before the array is written again. */
#define GROUP_REDUCE(part, OP) \
    BARRIER(); \
    for (int frit_s = GROUP_SIZE / 2; frit_s > 0; frit_s /= 2) { \
        if (LOCAL_ID < frit_s) part[LOCAL_ID] = OP(part[LOCAL_ID], part[LOCAL_ID + frit_s]); \
        BARRIER(); \
    }

/* Lanes. A dialect with native ones defines their exchange in its header; elsewhere it is shared memory and barriers. */
#define LANES 32
#define LANE (LOCAL_ID % LANES)
#define LANE_STORAGE SHARED(float, frit_lanes, GROUP_SIZE)
#define LANE_XOR(v, m) frit_lane_xor(frit_lanes, LOCAL_ID, v, m)
#ifndef NATIVE_LANES
HELPER float frit_lane_xor(SHARED_PTR float *lanes, int id, float v, int m) {
    BARRIER();
    lanes[id] = v;
    BARRIER();
    return lanes[id ^ m];
}
#endif
#define LANE_SUM(v) frit_lane_sum(frit_lanes, LOCAL_ID, v)
#define LANE_MAX(v) frit_lane_max(frit_lanes, LOCAL_ID, v)
#define GROUP_SUM(v) frit_group_sum(frit_lanes, LOCAL_ID, v)
#define GROUP_MAX(v) frit_group_max(frit_lanes, LOCAL_ID, v)
HELPER float frit_lane_sum(SHARED_PTR float *lanes, int id, float v) {
    for (int m = LANES / 2; m > 0; m /= 2) v += frit_lane_xor(lanes, id, v, m);
    return v;
}
HELPER float frit_lane_max(SHARED_PTR float *lanes, int id, float v) {
    for (int m = LANES / 2; m > 0; m /= 2) v = max_f32(v, frit_lane_xor(lanes, id, v, m));
    return v;
}
HELPER float frit_group_sum(SHARED_PTR float *lanes, int id, float v) {
    v = frit_lane_sum(lanes, id, v);
    BARRIER();
    lanes[id] = v;
    BARRIER();
    v = lanes[0];
    for (int i = LANES; i < GROUP_SIZE; i += LANES) v += lanes[i];
    return v;
}
HELPER float frit_group_max(SHARED_PTR float *lanes, int id, float v) {
    v = frit_lane_max(lanes, id, v);
    BARRIER();
    lanes[id] = v;
    BARRIER();
    v = lanes[0];
    for (int i = LANES; i < GROUP_SIZE; i += LANES) v = max_f32(v, lanes[i]);
    return v;
}

/* Rounds eight values of each of four neighbouring lanes, 32 in a row, as `quantize` does; not at all for 0 bits. */
#define ROUND8(y, bits) \
    if (bits) { \
        float frit_most = 0; \
        for (int frit_e = 0; frit_e < 8; frit_e++) frit_most = max_f32(frit_most, abs_f32((y)[frit_e])); \
        frit_most = max_f32(frit_most, LANE_XOR(frit_most, 1)); \
        frit_most = max_f32(frit_most, LANE_XOR(frit_most, 2)); \
        for (int frit_e = 0; frit_e < 8; frit_e++) (y)[frit_e] = frit_quantized((y)[frit_e], frit_most, bits); \
    }
