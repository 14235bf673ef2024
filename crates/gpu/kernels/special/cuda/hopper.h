/* What kernels for Hopper's matrix units share: barriers in shared memory, registers of their instructions, and the form in
   which tiles lie in shared memory. It stands before their texts. */

/* Barriers in shared memory. `at` is an address in shared memory everywhere here. */
HELPER u32 shared_at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
HELPER void barrier_make(u32 at, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
HELPER void barrier_wait(u32 at, u32 parity) {
    u32 done = 0;
    while (!done)
        asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}" : "=r"(done) : "r"(at), "r"(parity) : "memory");
}
HELPER void barrier_arrive(u32 at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

/* 32 and 64 registers of an item, which hold 64 rows of 64 and 128 columns; as operands. */
#define R64 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define R128 \
    R64 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)
#define D32(i) D16(i), D16(i + 16)

/* Of what the matrix units have not ended, at most `left` groups may be left. */
#define MATRIX_FENCE() asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define MATRIX_COMMIT() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define MATRIX_WAIT(left) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory")
/* Keeps what reads or writes `d` on its side of a wait. */
#define MATRIX_HOLD(d, n) \
    for (int i = 0; i < (n); i++) asm volatile("" : "+f"(d[i])::"memory")

/* Lines of 128 bytes from `at` on, the order of octets as the copy engine leaves them; those of the next 64 columns, where an
   instruction takes several, lie `apart` bytes further. */
HELPER u64 lines(u32 at, u32 apart) {
    return (u64)(at >> 4 & 0x3fff) | (u64)(apart >> 4) << 16 | (u64)(8 * 128 >> 4) << 32 | 1ull << 62;
}
