import { quoteLiteral } from '../names.ts'
import { READER_GROUP } from '../roles.ts'
import { STORAGE_GROUP, STORAGE_OWNER } from './names.ts'

/** The views that show a project its roles, in `catalogue.ts`. */
const VIEWS = ['pg_auth_members', 'pg_shdescription', 'pg_roles', 'pg_user']

const names = (...roles: string[]) => quoteLiteral(roles.map((role) => `'${role}'::name`).join(', '))

/** Where the catalogue was closed before these roles were: pg_dump gives up on an owner whose name it cannot read. */
export const VISIBLE_ROLES = `DO $$
  DECLARE view text; definition text;
  BEGIN
    PERFORM set_config('allow_system_table_mods', 'on', true);
    FOREACH view IN ARRAY '{${VIEWS.join(', ')}}'::text[] LOOP
      definition := pg_get_viewdef(('pg_catalog.' || view)::regclass);
      IF position(${names(READER_GROUP)} IN definition) > 0 AND position(${names(STORAGE_OWNER)} IN definition) = 0 THEN
        EXECUTE format('CREATE OR REPLACE VIEW pg_catalog.%I WITH (security_barrier) AS %s', view,
          replace(definition, ${names(READER_GROUP)}, ${names(READER_GROUP, STORAGE_OWNER, STORAGE_GROUP)}));
      END IF;
    END LOOP;
    PERFORM set_config('allow_system_table_mods', 'off', true);
  END $$`
