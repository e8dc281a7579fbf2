"""Index files built from the blocks of a scan, placed as a bulk job places them, but by loops."""

from storage.build.index_builder import IndexFileBuilder


def build_files(blocks, slots, entries):
    files: list[bytes] = []
    builder, last_entry, last_record = None, -1, -1
    for block in blocks:
        last_record = max(last_record, block.last_record)
        put, total = 0, block.hashes.size
        while put < total:
            if builder is None or not builder.room:
                builder = IndexFileBuilder(slots, entries, _close(builder, files))
            count = min(builder.room, total - put)
            builder.put(block.entries, put, count)
            put += count
        if total:
            last_entry = block.first_offset + int(block.record_offsets[-1])
    if last_record > last_entry and (builder is None or not builder.room):
        builder = IndexFileBuilder(slots, entries, _close(builder, files))
    _close(builder, files)
    return files


def _close(builder, files):
    if builder is None:
        return None
    header = builder.finish()
    assert not any(builder.memory[builder.used :])
    files.append(builder.memory[: builder.size])
    return header
