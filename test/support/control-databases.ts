import { randomBytes } from 'node:crypto'
import { migrateControlDatabase, withClient } from '../../dev/control-database.ts'

/** Creates a control database in the instance of a superuser's URL. No other Worker or sweeper sees its rows. */
export async function newControlDatabase(adminUrl: string, prefix: string) {
  const database = await newDatabase(adminUrl, prefix)
  await migrateControlDatabase(database.url)
  return database
}

/** Creates an empty database in the instance of a superuser's URL. */
export async function newDatabase(adminUrl: string, prefix: string) {
  const name = `${prefix}_${randomBytes(6).toString('hex')}`
  const url = new URL(adminUrl)
  url.pathname = `/${name}`
  await asAdmin(adminUrl, `create database ${name}`)
  // The superuser of instances finds nothing outside the catalogue by default.
  await asAdmin(adminUrl, `alter role current_user in database ${name} set search_path = public`)
  return { name, url: url.href, drop: () => asAdmin(adminUrl, `drop database ${name} with (force)`) }
}

const asAdmin = (url: string, statement: string): Promise<void> =>
  withClient(url, async (client) => void (await client.query(statement)))
