/* OpenCL C 1.2. */
#pragma OPENCL FP_CONTRACT OFF
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define HAS_F64 1
#else
#define HAS_F64 0
#endif

typedef char i8;
typedef uchar u8;
typedef short i16;
typedef ushort u16;
typedef int i32;
typedef uint u32;
typedef long i64;
typedef ulong u64;

#define GLOBAL __global
#define CONSTANT __global const
#define SHARED_PTR __local
#define PRIVATE __private
#define SHARED(T, name, n) __local T name[n]
#define HELPER static

#define ENTRY(name) __kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void name
#define BUFFER(n) __global u8 *frit_b##n
#define BLOCK(n) __global const u8 *frit_block, u32 frit_block_at
#define BLOCK_PTR (frit_block + frit_block_at)
#define BEGIN
#define HAS_PREFETCH 0
#define IDS_DECL
#define IDS

#define LOCAL_ID ((int)get_local_id(0))
#define GROUP_ID ((int)get_group_id(0))
#define GROUP_COUNT ((int)get_num_groups(0))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

/* Before a loop whose loads do not depend on one another. */
#define UNROLL

#define AS_FLOAT(u) as_float((u32)(u))
#define AS_UINT(f) as_uint((float)(f))
#define f16_to_f32(u) frit_f16_to_f32((u16)(u))
#define f32_to_f16(v) frit_f32_to_f16((float)(v))

/* vload_half and vstore_half need no extension; a private half can be read and written through them. */
static float frit_f16_to_f32(u16 u) { return vload_half(0, (__private const half *)&u); }
static u16 frit_f32_to_f16(float v) {
    u16 u;
    vstore_half_rte(v, 0, (__private half *)&u);
    return u;
}

#define FMA(a, b, c) fma((float)(a), (float)(b), (float)(c))
#define exp_f32(x) exp((float)(x))
#define log_f32(x) log((float)(x))
#define log1p_f32(x) log1p((float)(x))
#define sqrt_f32(x) sqrt((float)(x))
#define sin_f32(x) sin((float)(x))
#define cos_f32(x) cos((float)(x))
#define tan_f32(x) tan((float)(x))
#define atan_f32(x) atan((float)(x))
#define tanh_f32(x) tanh((float)(x))
#define erf_f32(x) erf((float)(x))
#define erfc_f32(x) erfc((float)(x))
#define abs_f32(x) fabs((float)(x))
#define floor_f32(x) floor((float)(x))
#define ceil_f32(x) ceil((float)(x))
#define round_f32(x) rint((float)(x))
#define pow_f32(a, b) pow((float)(a), (float)(b))
#define fmod_f32(a, b) fmod((float)(a), (float)(b))
