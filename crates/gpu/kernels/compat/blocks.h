/* Block formats: eight consecutive elements of a block at `p`, from element `i` (a multiple of 8) on. They lie in eight
   consecutive bytes at one shift and share a scale. The arithmetic is that of `frit_ir::block`: (d * scale) * code, then
   the minimum. */
#define FRIT_HALF(p, at) f16_to_f32((u16)READ_U16(p, at))

/* Eight bytes at `p` as two words, by halves where the block's length is no multiple of four. */
#define FRIT_BYTES(w, p) \
    const u32 w[2] = {READ_U16(p, 0) | READ_U16(p, 2) << 16, READ_U16(p, 4) | READ_U16(p, 6) << 16}
#define FRIT_WORDS(w, p) const u32 w[2] = {READ_U32(p, 0), READ_U32(p, 4)}
/* Halves of those bytes, the upper ones for a shift of 4: one shift for four codes. */
#define FRIT_NIBBLES(n, w, shift) const u32 n[2] = {w[0] >> (shift) & 0x0f0f0f0fu, w[1] >> (shift) & 0x0f0f0f0fu}
/* Byte e of the two words: the bits of `mask` at `shift`. */
#define FRIT_CODE(w, shift, mask) ((int)((w)[e / 4] >> (e % 4 * 8 + (shift)) & (mask)))

HELPER void frit_q4_0(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const float d = FRIT_HALF(p, 0);
    FRIT_BYTES(w, p + 2 + i % 16);
    FRIT_NIBBLES(n, w, i / 16 * 4);
    for (int e = 0; e < 8; e++) y[e] = d * (FRIT_CODE(n, 0, 15) - 8);
}
HELPER void frit_q4_1(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const float d = FRIT_HALF(p, 0), m = FRIT_HALF(p, 2);
    FRIT_WORDS(w, p + 4 + i % 16);
    FRIT_NIBBLES(n, w, i / 16 * 4);
    for (int e = 0; e < 8; e++) y[e] = d * FRIT_CODE(n, 0, 15) + m;
}
HELPER void frit_q5_0(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const float d = FRIT_HALF(p, 0);
    const int high = p[2 + i / 8];
    FRIT_BYTES(w, p + 6 + i % 16);
    for (int e = 0; e < 8; e++) y[e] = d * ((FRIT_CODE(w, i / 16 * 4, 15) | (high >> e & 1) << 4) - 16);
}
HELPER void frit_q5_1(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const float d = FRIT_HALF(p, 0), m = FRIT_HALF(p, 2);
    const int high = p[4 + i / 8];
    FRIT_WORDS(w, p + 8 + i % 16);
    for (int e = 0; e < 8; e++) y[e] = d * (FRIT_CODE(w, i / 16 * 4, 15) | (high >> e & 1) << 4) + m;
}
HELPER void frit_q8_0(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const float d = FRIT_HALF(p, 0);
    FRIT_BYTES(w, p + 2 + i);
    for (int e = 0; e < 8; e++) y[e] = d * (i8)FRIT_CODE(w, 0, 255);
}
HELPER void frit_q2_k(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const int s = p[i / 16];
    const float d = FRIT_HALF(p, 80) * (s & 15), m = FRIT_HALF(p, 82) * (s >> 4);
    FRIT_WORDS(w, p + 16 + i / 128 * 32 + i % 32);
    for (int e = 0; e < 8; e++) y[e] = d * FRIT_CODE(w, i % 128 / 32 * 2, 3) - m;
}
HELPER void frit_q3_k(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const int j = i / 16;
    const int s = (p[96 + j % 8] >> j / 8 * 4 & 15) | (p[104 + j % 4] >> j / 4 * 2 & 3) << 4;
    const float d = FRIT_HALF(p, 108) * (s - 32);
    FRIT_BYTES(w, p + 32 + i / 128 * 32 + i % 32);
    FRIT_BYTES(high, p + i % 32);
    for (int e = 0; e < 8; e++)
        y[e] = d * ((FRIT_CODE(w, i % 128 / 32 * 2, 3) | FRIT_CODE(high, i / 32, 1) << 2) - 4);
}
/* Scale and minimum of 32 elements, number j, of Q4_K and Q5_K, from the head of the block: six bits each, the last four
   with their upper two bits apart. */
HELPER void frit_scale6(GLOBAL const u8 *p, int j, PRIVATE float *d, PRIVATE float *m) {
    const uint4 head = *(GLOBAL const uint4 *)p;
    const int at = j % 4 * 8;
    const u32 low = head.y >> at, middle = head.z >> at, high = head.w >> at;
    const u32 scale = j < 4 ? low & 63 : (high & 15) | (low >> 6 & 3) << 4;
    const u32 minimum = j < 4 ? middle & 63 : (high >> 4 & 15) | (middle >> 6 & 3) << 4;
    *d = f16_to_f32((u16)(head.x & 0xffff)) * (int)scale;
    *m = f16_to_f32((u16)(head.x >> 16)) * (int)minimum;
}
HELPER void frit_q4_k(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    float d, m;
    frit_scale6(p, i / 32, &d, &m);
    FRIT_WORDS(w, p + 16 + i / 64 * 32 + i % 32);
    FRIT_NIBBLES(n, w, i % 64 / 32 * 4);
    for (int e = 0; e < 8; e++) y[e] = d * FRIT_CODE(n, 0, 15) - m;
}
HELPER void frit_q5_k(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    float d, m;
    frit_scale6(p, i / 32, &d, &m);
    FRIT_WORDS(w, p + 48 + i / 64 * 32 + i % 32);
    FRIT_WORDS(high, p + 16 + i % 32);
    for (int e = 0; e < 8; e++)
        y[e] = d * (FRIT_CODE(w, i % 64 / 32 * 4, 15) | FRIT_CODE(high, i / 32, 1) << 4) - m;
}
HELPER void frit_q6_k(GLOBAL const u8 *p, int i, PRIVATE float *y) {
    const int quarter = i % 128 / 32, l = i % 32;
    const float d = FRIT_HALF(p, 208) * (i8)p[192 + i / 16];
    FRIT_BYTES(w, p + i / 128 * 64 + quarter % 2 * 32 + l);
    FRIT_BYTES(high, p + 128 + i / 128 * 32 + l);
    for (int e = 0; e < 8; e++)
        y[e] = d * ((FRIT_CODE(w, quarter / 2 * 4, 15) | FRIT_CODE(high, quarter * 2, 3) << 4) - 32);
}
