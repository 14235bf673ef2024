/* What the kernels of rotary embedding share; it stands before their texts. */

/* Turns pair k of a row at `position`: reads its elements by FROM(i), stores them by TO(i, value). */
#define ROTATE(k, position, half_dims, FROM, TO) \
    { \
        const float angle = (float)(position) * LOAD(inv_freq, k); \
        const float s = sin_f32(angle) * PARAM(factor), c = cos_f32(angle) * PARAM(factor); \
        const IDX first = PARAM(interleaved) ? 2 * (k) : (k); \
        const IDX second = PARAM(interleaved) ? 2 * (k) + 1 : (k) + (half_dims); \
        const float u = FROM(first), v = FROM(second); \
        TO(first, FMA(u, c, -(v * s))); \
        TO(second, FMA(v, c, u * s)); \
    }
