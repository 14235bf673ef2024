/* What the kernels that write into the pages of a cache [page, KVH, slot, D] share; it stands before their texts. */

/* The row [page, head, slot] of the cache for `position` of row b of the batch; -1 if it has no place there. */
HELPER i64 place_of(ARGS_DECL, IDX b, IDX head, i64 position, IDX pages, IDX heads, IDX slots) {
    if (position < 0 || slots == 0) return -1;
    i64 page = b, slot = position;
#if HAS(table)
    page = position / slots < DIM(table, 1)
               ? LOAD(table, b * STRIDE(table, 0) + (IDX)(position / slots) * STRIDE(table, 1)) : -1;
    slot = position % slots;
#else
    if (PARAM(ring)) slot = position % slots;
#endif
    return page < 0 || page >= pages || slot >= slots ? -1 : (page * heads + head) * slots + slot;
}
