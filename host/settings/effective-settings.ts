import type { Instance } from '../instances/types.ts'
import { SETTINGS } from './owner-settings.ts'

/** A setting in the host's API. */
export interface EffectiveSetting {
  name: string
  /** The value as SHOW prints it, such as `16MB`. */
  value: string
  /** The default of Postgres. */
  default: string
  /** The column `source` of `pg_settings`. */
  source: string
  /** Whether the value changes at the next restart. */
  pending_restart: boolean
  /** The column `context` of `pg_settings`; `postmaster` means that a change needs a restart. */
  context: string
}

/** The daemon's session and role override some settings: for these, the query takes the value of the database or the file. */
const EFFECTIVE = `
  SELECT name, context, pending_restart, defaults.value AS default,
         coalesce(given.value, CASE WHEN isown THEN coalesce(file.value, defaults.value) ELSE current_setting(name) END) AS value,
         CASE WHEN given.value IS NOT NULL THEN 'database' WHEN NOT isown THEN source
              WHEN file.value IS NOT NULL THEN 'configuration file' ELSE 'default' END AS source
    FROM (SELECT *, source IN ('client', 'session', 'user', 'database user') AS isown FROM pg_settings WHERE name = ANY ($1::text[])) AS s
   CROSS JOIN LATERAL (SELECT CASE
        WHEN unit IS NULL OR boot_val IN ('0', '-1') THEN coalesce(boot_val, '')
        WHEN unit ~ '^[0-9]'
          THEN boot_val::numeric * substring(unit FROM '^[0-9]+')::numeric || substring(unit FROM '[A-Za-z]+$')
        ELSE boot_val || unit END AS value) AS defaults
    LEFT JOIN LATERAL (SELECT setting AS value FROM pg_file_settings AS f WHERE f.name = s.name AND isown
        ORDER BY seqno DESC LIMIT 1) AS file ON true
    LEFT JOIN LATERAL (SELECT substr(entry, strpos(entry, '=') + 1) AS value
        FROM pg_db_role_setting JOIN pg_database ON pg_database.oid = setdatabase, unnest(setconfig) AS entry
       WHERE datname = current_database() AND setrole = 0 AND split_part(entry, '=', 1) = s.name) AS given ON true
   ORDER BY name`

/** The settings that owners may change, with the values of a new session; excludes settings of libraries that are missing. */
export const readEffectiveSettings = (instance: Instance): Promise<EffectiveSetting[]> =>
  instance.admin.rows<EffectiveSetting>(EFFECTIVE, [[...SETTINGS]])
