import { idOf } from './scope.ts'

/** Something that is made along with another object, on which it may itself be a part. */
export interface Part {
  id: string
  whole: string
}

/** Row types, array and multirange types, the rules of views, the expressions of generated columns, the indexes of constraints. */
export const PARTS = `
  SELECT ${idOf('pg_type', 't.oid')} AS id, ${idOf('pg_class', 'typrelid')} AS whole FROM pg_type AS t JOIN pg_class AS c ON c.oid = typrelid
   WHERE relkind <> 'c'
  UNION ALL SELECT ${idOf('pg_class', 'c.oid')}, ${idOf('pg_type', 'reltype')} FROM pg_class AS c WHERE relkind = 'c'
  UNION ALL SELECT ${idOf('pg_type', 'typarray')}, ${idOf('pg_type', 'oid')} FROM pg_type WHERE typarray <> 0
  UNION ALL SELECT ${idOf('pg_type', 'rngmultitypid')}, ${idOf('pg_type', 'rngtypid')} FROM pg_range
  UNION ALL SELECT ${idOf('pg_rewrite', 'oid')}, ${idOf('pg_class', 'ev_class')} FROM pg_rewrite WHERE rulename = '_RETURN'
  UNION ALL SELECT ${idOf('pg_attrdef', 'd.oid')}, ${idOf('pg_class', 'adrelid')} FROM pg_attrdef AS d
    JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum WHERE attgenerated <> ''`

/** An index that a constraint makes is one with it, save for the statements that follow on the index itself. */
const INDEXES = `SELECT ${idOf('pg_class', 'conindid')} AS index, ${idOf('pg_constraint', 'oid')} AS key
  FROM pg_constraint WHERE contype IN ('p', 'u', 'x')`

export const DEPENDENCIES = `
  WITH indexes AS (${INDEXES}), stored AS (
    SELECT DISTINCT classid || ':' || objid AS id, refclassid || ':' || refobjid AS on FROM pg_depend
     WHERE objid >= 16384 AND refobjid >= 16384 AND deptype <> 'e')
  -- Their own order is the other way round: the index is what the constraint makes.
  SELECT * FROM stored WHERE NOT EXISTS (SELECT FROM indexes WHERE index = id)
  UNION ALL SELECT id, key FROM stored JOIN indexes ON index = stored.on WHERE id <> key
  UNION ALL SELECT index, key FROM indexes
  UNION ALL
  SELECT 'attach:' || inhrelid, ${idOf('pg_class', 'part')} FROM pg_inherits, unnest(ARRAY[inhrelid, inhparent]) AS part
  UNION ALL SELECT 'attach:' || i.inhrelid, 'attach:' || below.inhrelid FROM pg_inherits AS i JOIN pg_inherits AS below ON below.inhparent = i.inhrelid
  UNION ALL
  -- A foreign key needs the whole key of a partitioned table.
  SELECT ${idOf('pg_constraint', 'k.oid')}, 'attach:' || inhrelid FROM pg_constraint AS k JOIN pg_inherits ON inhparent = conindid
   WHERE contype = 'f'`
