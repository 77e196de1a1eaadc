/**
 * SQL for the condition, over `storage.objects AS o`, that a foreign key of the project's tables refers to the object. A copy
 * keeps only these rows of objects, because the bytes stay with the parent.
 */
export const REFERENCED_OBJECTS = `(
  SELECT coalesce(string_agg(format('EXISTS (SELECT FROM %s AS r WHERE %s)', conrelid::regclass, pairs), ' OR '), 'false')
    FROM pg_constraint, LATERAL (
      SELECT string_agg(format('r.%I = o.%I', theirs.attname, ours.attname), ' AND ') AS pairs
        FROM unnest(conkey, confkey) AS k (their, our)
        JOIN pg_attribute AS theirs ON theirs.attrelid = conrelid AND theirs.attnum = k.their
        JOIN pg_attribute AS ours ON ours.attrelid = confrelid AND ours.attnum = k.our) AS k
   WHERE contype = 'f' AND confrelid = to_regclass('storage.objects') AND conrelid <> confrelid AND conparentid = 0)`
