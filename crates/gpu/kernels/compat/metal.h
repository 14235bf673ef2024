/* Metal Shading Language, built with safe math. There is no double. */
#include <metal_stdlib>
using namespace metal;
/* By default products and sums are fused across statements, even with safe math. */
#pragma METAL fp contract(off)
#define HAS_F64 0

typedef char i8;
typedef uchar u8;
typedef short i16;
typedef ushort u16;
typedef int i32;
typedef uint u32;
typedef long i64;
typedef ulong u64;

#define GLOBAL device
#define CONSTANT constant
#define SHARED_PTR threadgroup
#define PRIVATE thread
#define SHARED(T, name, n) threadgroup T name[n]
#define HELPER static

#define ENTRY(name) [[max_total_threads_per_threadgroup(GROUP_SIZE)]] kernel void name
#define BUFFER(n) device u8 *frit_b##n [[buffer(n)]]
#define BLOCK(n) \
    constant u8 *frit_block [[buffer(n)]], u32 frit_local [[thread_index_in_threadgroup]], \
        u32 frit_group [[threadgroup_position_in_grid]], u32 frit_groups [[threadgroups_per_grid]]
#define BLOCK_PTR frit_block
#define BEGIN
#define HAS_PREFETCH 0
#define IDS_DECL , u32 frit_local, u32 frit_group, u32 frit_groups
#define IDS , frit_local, frit_group, frit_groups

#define LOCAL_ID ((int)frit_local)
#define GROUP_ID ((int)frit_group)
#define GROUP_COUNT ((int)frit_groups)
#define BARRIER() threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device)

#define UNROLL _Pragma("unroll(2)")

#define AS_FLOAT(u) as_type<float>((u32)(u))
#define AS_UINT(f) as_type<u32>((float)(f))
#define f16_to_f32(u) ((float)as_type<half>((u16)(u)))
#define f32_to_f16(v) as_type<u16>((half)(float)(v))

#define FMA(a, b, c) fma((float)(a), (float)(b), (float)(c))
#define exp_f32(x) precise::exp((float)(x))
#define log_f32(x) precise::log((float)(x))
#define sqrt_f32(x) precise::sqrt((float)(x))
#define sin_f32(x) precise::sin((float)(x))
#define cos_f32(x) precise::cos((float)(x))
#define tan_f32(x) precise::tan((float)(x))
#define atan_f32(x) precise::atan((float)(x))
#define tanh_f32(x) precise::tanh((float)(x))
#define abs_f32(x) fabs((float)(x))
#define floor_f32(x) floor((float)(x))
#define ceil_f32(x) ceil((float)(x))
#define round_f32(x) rint((float)(x))
#define pow_f32(a, b) precise::pow((float)(a), (float)(b))
#define fmod_f32(a, b) precise::fmod((float)(a), (float)(b))
/* The language has neither the error function nor log1p: those of common.h. */
#define OWN_ERF 1
