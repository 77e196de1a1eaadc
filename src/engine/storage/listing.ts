import { STORAGE_OWNER } from './names.ts'

/**
 * SQL for functions that list a folder by walking an index: a subfolder costs one probe, whatever its size. The functions run
 * as the caller, so that the caller's policies apply.
 */
export function listing(): string[] {
  return [
    ...ownedFunction('entries_by_name(text, text, text, integer, boolean, boolean, integer, integer)', entriesByName()),
    ...ownedFunction(
      'entries_by_time(text, text, integer, boolean, boolean, text, text, timestamptz, integer, integer)',
      entriesByTime(),
    ),
    ...ownedFunction('search(text, text, integer, integer, integer, text, text, text)', search()),
    ...ownedFunction(
      'list_objects_with_delimiter(text, text, text, integer, text, text, text, timestamptz)',
      listObjects(),
    ),
  ]
}

function ownedFunction(signature: string, create: string): string[] {
  return [create, `ALTER FUNCTION storage.${signature} OWNER TO ${STORAGE_OWNER}`]
}

/** A folder has no id; its name ends in a slash. */
const ENTRY =
  'name text, id uuid, metadata jsonb, updated_at timestamptz, created_at timestamptz, last_accessed_at timestamptz'
const COLUMNS = 'o.name, o.id, o.metadata, o.updated_at, o.created_at, o.last_accessed_at'

/** Sorts after every name when appended to its prefix: no name contains 1200 bytes of the last character. */
const LAST = 'repeat(chr(1114111), 300)'
const KEYS = { folded: 'storage.folded(o.name)', exact: 'o.name' }
/**
 * The position of the slash that ends a folder directly below the prefix of `base` characters; null without a base. Computed
 * from the name, which has as many characters as its folded key and needs no function call.
 */
const slashIn = (name: string) => `position('/' IN substr(${name}, base + 1))`

type Order = 'ASC' | 'DESC'

const range = (key: string) => `o.bucket_id = bucket AND ${key} >= low AND ${key} < high`

/**
 * SQL that lists the names from `low` up to but not including `high`, in either order. Names that continue after a slash
 * become folders.
 */
function entriesByName(): string {
  return `CREATE OR REPLACE FUNCTION storage.entries_by_name(
      bucket text, low text, high text, base integer, folded boolean, ascending boolean, skipped integer, wanted integer)
    RETURNS TABLE (${ENTRY}) LANGUAGE plpgsql STABLE
    SET enable_sort = off SET plan_cache_mode = force_generic_plan AS $$
    DECLARE entry record; slash integer; folder text; interrupted boolean;
    BEGIN
      IF wanted <= 0 THEN RETURN; END IF;
      IF folded AND ascending THEN ${walk(KEYS.folded, 'ASC')}
      ELSIF folded THEN ${walk(KEYS.folded, 'DESC')}
      ELSIF ascending THEN ${walk(KEYS.exact, 'ASC')}
      ELSE ${walk(KEYS.exact, 'DESC')}
      END IF;
    END $$`
}

function walk(key: string, order: Order): string {
  const keyOf = key.replace('o.', 'entry.')
  const where = `FROM storage.objects AS o WHERE ${range(key)} ORDER BY ${key} ${order}`
  const fromThere = order === 'ASC' ? `low := ${keyOf}` : `high := ${keyOf} || E'\\x01'`
  const pastFolder = order === 'ASC' ? `low := left(folder, -1) || '0'` : 'high := folder'
  const emit = 'wanted := wanted - 1; RETURN NEXT; IF wanted = 0 THEN RETURN; END IF'
  return `LOOP
    SELECT ${COLUMNS}, ${key} AS key INTO entry ${where} LIMIT 1;
    IF NOT FOUND THEN RETURN; END IF;
    slash := ${slashIn('entry.name')};
    IF slash > 0 THEN
      folder := left(entry.key, base + slash);
      ${pastFolder};
      IF skipped > 0 THEN skipped := skipped - 1; CONTINUE; END IF;
      name := left(entry.name, base + slash);
      id := NULL; metadata := NULL; updated_at := NULL; created_at := NULL; last_accessed_at := NULL;
      ${emit};
      CONTINUE;
    END IF;
    interrupted := false;
    FOR entry IN SELECT ${COLUMNS}, ${slashIn('o.name')} > 0 AS nested ${where} LOOP
      IF entry.nested THEN ${fromThere}; interrupted := true; EXIT; END IF;
      IF skipped > 0 THEN skipped := skipped - 1; CONTINUE; END IF;
      name := entry.name; id := entry.id; metadata := entry.metadata;
      updated_at := entry.updated_at; created_at := entry.created_at; last_accessed_at := entry.last_accessed_at;
      ${emit};
    END LOOP;
    IF NOT interrupted THEN RETURN; END IF;
  END LOOP;`
}

/**
 * SQL that lists folders in the order of their names, then files in the order of their times, in milliseconds as clients see
 * them. A file without a time comes before all times. Skips the content of folders, but reads all files: no index contains
 * their times.
 */
function entriesByTime(): string {
  return `CREATE OR REPLACE FUNCTION storage.entries_by_time(
      bucket text, prefix text, base integer, folded boolean, ascending boolean, column_name text,
      after_name text, after_time timestamptz, skipped integer, wanted integer)
    RETURNS TABLE (${ENTRY}) LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
    DECLARE
      low text := prefix; high text := prefix || ${LAST};
      entry record; folder text; folders text[] := '{}'; starts text[] := '{}'; ends text[] := '{}'; emitted integer := 0;
    BEGIN
      IF base IS NULL THEN starts := ARRAY[low]; ends := ARRAY[high];
      ELSIF folded THEN ${findFolders(KEYS.folded)}
      ELSE ${findFolders(KEYS.exact)}
      END IF;
      IF after_time IS NULL THEN
        RETURN QUERY SELECT f, NULL::uuid, NULL::jsonb, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz
          FROM unnest(folders) AS f
         WHERE after_name IS NULL OR CASE WHEN ascending THEN f > after_name COLLATE "C" ELSE f < after_name COLLATE "C" END
         ORDER BY CASE WHEN ascending THEN f COLLATE "C" END, f COLLATE "C" DESC OFFSET skipped LIMIT wanted;
        GET DIAGNOSTICS emitted = ROW_COUNT;
        skipped := greatest(skipped - cardinality(folders), 0);
      END IF;
      wanted := wanted - emitted;
      IF wanted <= 0 THEN RETURN; END IF;
      IF folded AND ascending THEN ${filesByTime(KEYS.folded, 'ASC')}
      ELSIF folded THEN ${filesByTime(KEYS.folded, 'DESC')}
      ELSIF ascending THEN ${filesByTime(KEYS.exact, 'ASC')}
      ELSE ${filesByTime(KEYS.exact, 'DESC')}
      END IF;
    END $$`
}

function findFolders(key: string): string {
  return `LOOP
    SELECT o.name, ${key} AS key INTO entry FROM storage.objects AS o
      WHERE ${range(key)} AND ${slashIn('o.name')} > 0 ORDER BY ${key} LIMIT 1;
    starts := array_append(starts, low);
    IF NOT FOUND THEN ends := array_append(ends, high); EXIT; END IF;
    folder := left(entry.key, base + ${slashIn('entry.name')});
    ends := array_append(ends, folder);
    folders := array_append(folders, left(entry.name, char_length(folder)));
    low := left(folder, -1) || '0';
  END LOOP;`
}

function filesByTime(key: string, order: Order): string {
  const column = `CASE column_name
    WHEN 'created_at' THEN o.created_at WHEN 'last_accessed_at' THEN o.last_accessed_at ELSE o.updated_at END`
  const time = `coalesce(nullif(date_trunc('milliseconds', ${column}), 'infinity'), '-infinity')`
  return `RETURN QUERY SELECT ${COLUMNS}
    FROM unnest(starts, ends) AS run (low, high) JOIN storage.objects AS o
      ON o.bucket_id = bucket AND ${key} >= run.low AND ${key} < run.high
   WHERE after_time IS NULL OR (${time}, o.name) ${order === 'ASC' ? '>' : '<'} (after_time, after_name)
   ORDER BY ${time} ${order}, o.name ${order} OFFSET skipped LIMIT wanted;`
}

/** SQL that lists names without the path of their folder, ignoring case. A folder comes without its slash. */
function search(): string {
  return `CREATE OR REPLACE FUNCTION storage.search(
      prefix text, bucketname text, limits integer DEFAULT 100, levels integer DEFAULT 1, offsets integer DEFAULT 0,
      search text DEFAULT '', sortcolumn text DEFAULT 'name', sortorder text DEFAULT 'asc')
    RETURNS TABLE (name text, id uuid, updated_at timestamptz, created_at timestamptz, last_accessed_at timestamptz, metadata jsonb)
    LANGUAGE plpgsql STABLE AS $$
    DECLARE
      start text := prefix || search;
      folder text := coalesce(array_to_string((string_to_array(start, '/'))[1 : levels - 1], '/') || '/', '');
      ascending boolean := lower(sortorder) <> 'desc';
    BEGIN
      IF levels <= 1 THEN folder := ''; END IF;
      start := storage.folded(CASE WHEN char_length(folder) > char_length(start) THEN folder ELSE start END);
      limits := least(limits, 1500);
      offsets := greatest(offsets, 0);
      IF sortcolumn = 'name' THEN
        RETURN QUERY SELECT ${shortName('e', 'folder')}, e.id, e.updated_at, e.created_at, e.last_accessed_at, e.metadata
          FROM storage.entries_by_name(
            bucketname, start, start || ${LAST}, char_length(folder), true, ascending, offsets, limits) AS e;
      ELSE
        RETURN QUERY SELECT ${shortName('e', 'folder')}, e.id, e.updated_at, e.created_at, e.last_accessed_at, e.metadata
          FROM storage.entries_by_time(
            bucketname, start, char_length(folder), true, ascending, sortcolumn, NULL, NULL, offsets, limits) AS e;
      END IF;
    END $$`
}

const shortName = (entry: string, folder: string) =>
  `substr(CASE WHEN ${entry}.id IS NULL THEN left(${entry}.name, -1) ELSE ${entry}.name END, char_length(${folder}) + 1)`

/** SQL that lists full names, with their case. A page starts after the last entry of the previous page. */
function listObjects(): string {
  return `CREATE OR REPLACE FUNCTION storage.list_objects_with_delimiter(
      bucket text, prefix text, delimiter text, max_keys integer DEFAULT 100, start_after text DEFAULT NULL,
      sort_order text DEFAULT 'asc', sort_column text DEFAULT 'name', start_after_time timestamptz DEFAULT NULL)
    RETURNS TABLE (${ENTRY}) LANGUAGE plpgsql STABLE AS $$
    DECLARE
      ascending boolean := lower(sort_order) <> 'desc';
      base integer := CASE delimiter WHEN '/' THEN char_length(prefix) END;
      low text := prefix;
      high text := prefix || ${LAST};
      slash integer := ${slashIn('start_after')};
    BEGIN
      IF delimiter NOT IN ('/', '') THEN
        RAISE 'the delimiter is / or nothing' USING ERRCODE = 'invalid_parameter_value';
      END IF;
      IF sort_column <> 'name' THEN
        RETURN QUERY SELECT * FROM storage.entries_by_time(
          bucket, prefix, base, false, ascending, sort_column, start_after, start_after_time, 0, max_keys);
        RETURN;
      END IF;
      IF slash > 0 THEN start_after := left(start_after, base + slash); END IF;
      IF NOT ascending THEN high := least(high COLLATE "C", start_after);
      ELSIF slash > 0 THEN low := greatest(low COLLATE "C", left(start_after, -1) || '0');
      ELSIF start_after IS NOT NULL THEN low := greatest(low COLLATE "C", start_after || E'\\x01');
      END IF;
      RETURN QUERY SELECT * FROM storage.entries_by_name(bucket, low, high, base, false, ascending, 0, max_keys);
    END $$`
}
