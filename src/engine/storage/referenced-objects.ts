/**
 * An object's bytes stay with the parent of a copy, so its row does not come along either, save where a foreign key of the
 * project's own tables points at it: SQL for the condition, over `storage.objects AS o`.
 */
export const REFERENCED_OBJECTS = `(
  SELECT coalesce(string_agg(format('EXISTS (SELECT FROM %s AS r WHERE %s)', conrelid::regclass, pairs), ' OR '), 'false')
    FROM pg_constraint, LATERAL (
      SELECT string_agg(format('r.%I = o.%I', theirs.attname, ours.attname), ' AND ') AS pairs
        FROM unnest(conkey, confkey) AS k (their, our)
        JOIN pg_attribute AS theirs ON theirs.attrelid = conrelid AND theirs.attnum = k.their
        JOIN pg_attribute AS ours ON ours.attrelid = confrelid AND ours.attnum = k.our) AS k
   WHERE contype = 'f' AND confrelid = to_regclass('storage.objects') AND conrelid <> confrelid AND conparentid = 0)`
