/* CUDA C++ by NVRTC, built with --fmad=false --ftz=false: nothing is contracted, subnormals stay. */
#define HAS_F64 1

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#define GLOBAL
#define CONSTANT const
#define SHARED_PTR
#define PRIVATE
#define SHARED(T, name, n) __shared__ T name[n]
#define HELPER static __device__ __forceinline__

#define ENTRY(name) extern "C" __global__ void __launch_bounds__(GROUP_SIZE) name
#define BUFFER(n) u8 *frit_b##n
#define BLOCK(n) const u8 *__restrict__ frit_block, u32 frit_block_at
#define BLOCK_PTR (frit_block + frit_block_at)
/* Since Hopper a kernel may start while those before it run; here it lets the next one start, and waits until what it
   depends on is written. */
#if __CUDA_ARCH__ >= 900
#define BEGIN asm volatile("griddepcontrol.launch_dependents;"); asm volatile("griddepcontrol.wait;" ::: "memory")
#else
#define BEGIN
#endif
#define HAS_PREFETCH 1
HELPER void frit_prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
#define IDS_DECL
#define IDS

#define LOCAL_ID ((int)threadIdx.x)
#define GROUP_ID ((int)blockIdx.x)
#define GROUP_COUNT ((int)gridDim.x)
#define BARRIER() __syncthreads()

#define NATIVE_LANES 1
#define frit_lane_xor(lanes, id, v, m) __shfl_xor_sync(0xffffffffu, v, m)
#define UNROLL _Pragma("unroll 2")

#define AS_FLOAT(u) __uint_as_float((u32)(u))
#define AS_UINT(f) __float_as_uint((float)(f))

HELPER float f16_to_f32(u16 u) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(u));
    return v;
}
HELPER u16 f32_to_f16(float v) {
    u16 u;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(u) : "f"(v));
    return u;
}

#define FMA(a, b, c) fmaf((float)(a), (float)(b), (float)(c))
#define exp_f32(x) expf((float)(x))
#define log_f32(x) logf((float)(x))
#define log1p_f32(x) log1pf((float)(x))
#define sqrt_f32(x) sqrtf((float)(x))
#define sin_f32(x) sinf((float)(x))
#define cos_f32(x) cosf((float)(x))
#define tan_f32(x) tanf((float)(x))
#define atan_f32(x) atanf((float)(x))
#define tanh_f32(x) tanhf((float)(x))
#define erf_f32(x) erff((float)(x))
#define erfc_f32(x) erfcf((float)(x))
#define abs_f32(x) fabsf((float)(x))
#define floor_f32(x) floorf((float)(x))
#define ceil_f32(x) ceilf((float)(x))
#define round_f32(x) rintf((float)(x))
#define pow_f32(a, b) powf((float)(a), (float)(b))
#define fmod_f32(a, b) fmodf((float)(a), (float)(b))
