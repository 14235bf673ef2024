/* Block formats: eight consecutive elements of a block at `p`, from element `i` (a multiple of 8) on. They lie in eight
   consecutive bytes at one shift and share a scale. The arithmetic is that of `frit_ir::block`: (d * scale) * code, then
   the minimum. */
#define FRIT_HALF(p, at) f16_to_f32((u16)READ_U16(p, at))

/* Codes of `bits` bits at `low`; the upper part of each from `high`, spread over the eight bytes or, with `one`, the bits
   of one byte. */
#define FRIT_CODE(low, shift, mask) ((int)((low)[e] >> (shift) & (mask)))

HELPER void frit_q4_0(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const float d = FRIT_HALF(p, 0);
    for (int e = 0; e < 8; e++) y[e] = d * (FRIT_CODE(p + 2 + i % 16, i / 16 * 4, 15) - 8);
}
HELPER void frit_q4_1(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const float d = FRIT_HALF(p, 0), m = FRIT_HALF(p, 2);
    for (int e = 0; e < 8; e++) y[e] = d * FRIT_CODE(p + 4 + i % 16, i / 16 * 4, 15) + m;
}
HELPER void frit_q5_0(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const float d = FRIT_HALF(p, 0);
    const int high = p[2 + i / 8];
    for (int e = 0; e < 8; e++)
        y[e] = d * ((FRIT_CODE(p + 6 + i % 16, i / 16 * 4, 15) | (high >> e & 1) << 4) - 16);
}
HELPER void frit_q5_1(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const float d = FRIT_HALF(p, 0), m = FRIT_HALF(p, 2);
    const int high = p[4 + i / 8];
    for (int e = 0; e < 8; e++)
        y[e] = d * (FRIT_CODE(p + 8 + i % 16, i / 16 * 4, 15) | (high >> e & 1) << 4) + m;
}
HELPER void frit_q8_0(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const float d = FRIT_HALF(p, 0);
    for (int e = 0; e < 8; e++) y[e] = d * (i8)p[2 + i + e];
}
HELPER void frit_q2_k(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const int s = p[i / 16];
    const float d = FRIT_HALF(p, 80) * (s & 15), m = FRIT_HALF(p, 82) * (s >> 4);
    for (int e = 0; e < 8; e++) y[e] = d * FRIT_CODE(p + 16 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 3) - m;
}
HELPER void frit_q3_k(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const int j = i / 16;
    const int s = (p[96 + j % 8] >> j / 8 * 4 & 15) | (p[104 + j % 4] >> j / 4 * 2 & 3) << 4;
    const float d = FRIT_HALF(p, 108) * (s - 32);
    for (int e = 0; e < 8; e++)
        y[e] = d * ((FRIT_CODE(p + 32 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 3)
                     | FRIT_CODE(p + i % 32, i / 32, 1) << 2) - 4);
}
/* Scale and minimum of Q4_K and Q5_K: six bits each, the last four with their upper two bits apart. */
HELPER float frit_scale6(GLOBAL const u8 *p, int j) {
    return FRIT_HALF(p, 0) * (j < 4 ? p[4 + j] & 63 : (p[8 + j] & 15) | p[j] >> 6 << 4);
}
HELPER float frit_minimum6(GLOBAL const u8 *p, int j) {
    return FRIT_HALF(p, 2) * (j < 4 ? p[8 + j] & 63 : p[8 + j] >> 4 | p[4 + j] >> 6 << 4);
}
HELPER void frit_q4_k(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const float d = frit_scale6(p, i / 32), m = frit_minimum6(p, i / 32);
    for (int e = 0; e < 8; e++) y[e] = d * FRIT_CODE(p + 16 + i / 64 * 32 + i % 32, i % 64 / 32 * 4, 15) - m;
}
HELPER void frit_q5_k(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const float d = frit_scale6(p, i / 32), m = frit_minimum6(p, i / 32);
    for (int e = 0; e < 8; e++)
        y[e] = d * (FRIT_CODE(p + 48 + i / 64 * 32 + i % 32, i % 64 / 32 * 4, 15)
                    | FRIT_CODE(p + 16 + i % 32, i / 32, 1) << 4) - m;
}
HELPER void frit_q6_k(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const int quarter = i % 128 / 32, l = i % 32;
    const float d = FRIT_HALF(p, 208) * (i8)p[192 + i / 16];
    for (int e = 0; e < 8; e++)
        y[e] = d * ((FRIT_CODE(p + i / 128 * 64 + quarter % 2 * 32 + l, quarter / 2 * 4, 15)
                     | FRIT_CODE(p + 128 + i / 128 * 32 + l, quarter * 2, 3) << 4) - 32);
}
