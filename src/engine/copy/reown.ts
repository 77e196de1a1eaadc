import { type ProjectNames, quoteLiteral, TEMPORARY_LOGIN } from '../names.ts'

/**
 * For a superuser in a copy that still names the parent's roles: puts the copy's in their place, in every catalogue.
 * REASSIGN OWNED and DROP OWNED would reach the parent's database too, as they also work on what all databases share.
 */
export function reown(from: ProjectNames, to: ProjectNames): string {
  const parent = quoteLiteral(from.owner)
  const copy = quoteLiteral(to.owner)
  const temporary = quoteLiteral(`${from.owner}${TEMPORARY_LOGIN.replace('$', '')}`)
  return `DO $do$
    DECLARE catalogue record; role record;
    BEGIN
      FOR role IN
        SELECT theirs.oid AS old, ours.oid AS new FROM pg_authid AS theirs JOIN pg_authid AS ours
            ON ours.rolname = ${copy} || CASE WHEN theirs.rolname ~ ${temporary} THEN '' ELSE substr(theirs.rolname, length(${parent}) + 1) END
         WHERE theirs.oid <> ours.oid AND (theirs.rolname = ${parent} OR starts_with(theirs.rolname, ${parent} || '_'))
      LOOP
        FOR catalogue IN
          SELECT fktable::regclass AS name, fkcols[1] AS attribute, is_array FROM pg_get_catalog_foreign_keys()
            JOIN pg_class ON pg_class.oid = fktable WHERE pktable = 'pg_authid'::regclass AND NOT relisshared
        LOOP
          IF catalogue.is_array THEN
            EXECUTE format('UPDATE %s SET %2$I = array_replace(%2$I, $1, $2) WHERE $1 = ANY (%2$I)', catalogue.name, catalogue.attribute)
              USING role.old, role.new;
          ELSE
            EXECUTE format('UPDATE %s SET %2$I = $2 WHERE %2$I = $1', catalogue.name, catalogue.attribute)
              USING role.old, role.new;
          END IF;
        END LOOP;
        UPDATE pg_shdepend SET refobjid = role.new WHERE refclassid = 'pg_authid'::regclass AND refobjid = role.old
          AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database());
      END LOOP;
      FOR catalogue IN
        SELECT attrelid::regclass AS name, attname AS attribute FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
         WHERE atttypid = 'aclitem[]'::regtype AND relkind = 'r' AND NOT relisshared AND relnamespace = 'pg_catalog'::regnamespace
      LOOP
        EXECUTE format(
          'UPDATE %s SET %2$I = (
             SELECT array_agg(replace(regexp_replace(item::text, $3, $1, ''g''), $1, $2)::aclitem ORDER BY place)
               FROM unnest(%2$I) WITH ORDINALITY AS entry (item, place))
            WHERE position($1 IN %2$I::text) > 0', catalogue.name, catalogue.attribute)
          USING ${parent}, ${copy}, ${temporary};
      END LOOP;
      UPDATE pg_proc SET proconfig = array_replace(proconfig, 'role=' || ${parent}, 'role=' || ${copy})
       WHERE 'role=' || ${parent} = ANY (proconfig);
    END $do$`
}
