import type pg from 'pg'
import { quoteLiterals } from '../../src/engine/names.ts'
import { GUARDED_SCHEMAS, GUARDED_TRIGGERS } from '../../src/engine/storage/guard.ts'
import { AUTH_OWNER, STORAGE_OWNER } from '../../src/engine/storage/names.ts'
import type { DumpEntry } from './dump.ts'

/** The roles and schemas of the platform in a database. Only superusers can have created the objects that belong to them. */
export interface Platform {
  superusers: ReadonlySet<string>
  /** Schemas in which objects of the services are guarded. In a database that the owner created, schemas of these names are not guarded. */
  schemas: ReadonlySet<string>
}

const SERVICES = [STORAGE_OWNER, AUTH_OWNER]
const IS_GUARDED = `n.nspname IN (${quoteLiterals(GUARDED_SCHEMAS)}) AND n.nspowner IN (SELECT oid FROM pg_roles WHERE rolsuper)`
/** Condition that a table belongs to the platform. `n` is the row of its schema, `owner` the row of its owner in `pg_roles`. */
export const IS_PLATFORM_TABLE = `(owner.rolsuper OR (${IS_GUARDED} AND owner.rolname IN (${quoteLiterals(SERVICES)})))`

/** Types of the platform's objects. */
const OBJECTS = new Set([
  ...['TYPE', 'FUNCTION', 'PROCEDURE', 'AGGREGATE', 'VIEW', 'TABLE', 'DEFAULT', 'SEQUENCE', 'SEQUENCE OWNED BY'],
  ...['ROW SECURITY', 'INDEX', 'CONSTRAINT', 'FK CONSTRAINT', 'TRIGGER', 'EVENT TRIGGER'],
])
/** Types that contain nothing of the owner, and that other objects may need. */
const CONTAINERS = new Set(['SCHEMA', 'EXTENSION'])

export async function readPlatform(from: pg.Client): Promise<Platform> {
  const names = async (query: string) =>
    new Set((await from.query<{ name: string }>(query)).rows.map(({ name }) => name))
  return {
    superusers: await names('SELECT rolname AS name FROM pg_roles WHERE rolsuper'),
    schemas: await names(`SELECT nspname AS name FROM pg_namespace AS n WHERE ${IS_GUARDED}`),
  }
}

/**
 * Whether only a superuser can have created what the entry creates, so that it calls nothing of the owner. The owner may add
 * triggers to tables of superusers and services, and policies to those of services.
 */
export function isOfPlatform({ type, schema, owner, statements }: DumpEntry, platform: Platform): boolean {
  const isGuarded = SERVICES.includes(owner) && platform.schemas.has(schema)
  if (!isGuarded && !platform.superusers.has(owner)) return false
  if (type !== 'TRIGGER') return !isGuarded || type !== 'POLICY'
  const [create = ''] = statements
  return platform.schemas.has(schema) && GUARDED_TRIGGERS.some((name) => create.startsWith(`CREATE TRIGGER ${name} `))
}

/** Whether the entry is loaded before everything else. */
export const comesFirst = (entry: DumpEntry, platform: Platform): boolean =>
  CONTAINERS.has(entry.type) || (OBJECTS.has(entry.type) && isOfPlatform(entry, platform))
