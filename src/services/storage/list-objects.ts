import * as z from 'zod'
import { isStorable } from '../../platform/http/common-values.ts'
import { asReader } from './database.ts'
import { requireCaller, type StorageContext } from './request.ts'
import { optional, readJson } from './request-body.ts'
import * as lists from './statements/lists.ts'
import { asJson } from './statements/values.ts'
import { bucketIn } from './storage-address.ts'
import { StorageError } from './storage-error.ts'

const LISTED_MAX = 1_500
const PAGE_MAX = 1_000

/** Text that Postgres can store. */
const text = z.string().refine(isStorable, 'must be text without NUL characters or lone surrogates')
const order = z.enum(['asc', 'desc'])

const SORTED = ['name', 'updated_at', 'created_at'] as const
const SortBy = z.object({
  column: optional(z.enum(SORTED), 'name'),
  order: optional(order, 'asc'),
})
const BY_NAME = { column: 'name', order: 'asc' } as const

const Listing = z.object({
  prefix: text,
  limit: optional(z.int().min(1), 100),
  offset: optional(z.int().min(0).max(2_147_483_647), 0),
  search: optional(text, ''),
  sortBy: optional(SortBy.extend({ column: optional(z.enum([...SORTED, 'last_accessed_at']), 'name') }), BY_NAME),
})

const JSON_TYPE = { 'content-type': 'application/json; charset=utf-8' }

/** Lists the files and folders directly under a folder. */
export async function list(c: StorageContext) {
  const caller = await requireCaller(c, 'storage.object.list')
  const { prefix, limit, sortBy, ...rest } = await readJson(c, Listing)
  const statement = lists.listObjects({
    ...rest,
    ...sortBy,
    bucketId: bucketIn(c),
    prefix: prefix === '' || prefix.endsWith('/') ? prefix : `${prefix}/`,
    limit: Math.min(limit, LISTED_MAX),
  })
  const [[found] = []] = await asReader(c.var, caller, [asJson(statement)])
  return c.body(String(found?.json), 200, JSON_TYPE)
}

const Page = z.object({
  prefix: optional(text, ''),
  limit: optional(z.int().min(1), PAGE_MAX),
  cursor: z.string().nullish(),
  with_delimiter: optional(z.boolean(), false),
  sortBy: optional(SortBy, BY_NAME),
})

interface Entry {
  name: string
  id: string | null
  created_at: string | null
  updated_at: string | null
}

/** Returns a page of the objects whose names begin with a prefix, and the cursor of the next page. */
export async function listPage(c: StorageContext) {
  const caller = await requireCaller(c, 'storage.object.list_v2')
  const { prefix, limit, cursor, with_delimiter: delimited, sortBy } = await readJson(c, Page)
  const from = cursor ? cursorIn(cursor) : { ...sortBy, after: undefined }
  const size = Math.min(limit, PAGE_MAX)
  const statement = lists.listPage({ bucketId: bucketIn(c), prefix, delimited, limit: size + 1, ...from })
  const [[found] = []] = await asReader(c.var, caller, [asJson(statement)])
  const rows = JSON.parse(String(found?.json)) as Entry[]
  const entries = rows.slice(0, size)
  const last = entries.at(-1)
  const hasNext = rows.length > size && last !== undefined
  return c.json({
    hasNext,
    ...(hasNext && { nextCursor: cursorOf(last, from), nextCursorKey: last.name }),
    folders: entries.filter(isFolder).map((entry) => ({ key: keyOf(entry), ...entry })),
    objects: entries
      .filter((entry) => !isFolder(entry))
      .map((entry) => ({ ...(delimited && { key: entry.name }), ...entry })),
  })
}

const isFolder = ({ id }: Entry) => id === null
const keyOf = ({ name }: Entry) => name.replace(/\/$/, '')

/** The project's SQL can set a time to null; such a file sorts as the oldest. */
const NO_TIME = '-infinity'

type From = Pick<lists.Page, 'column' | 'order' | 'after'>

function cursorOf(last: Entry, { column, order }: From): string {
  // Encoded, as a name that SQL wrote may contain line breaks.
  const lines = [`l:${encodeURIComponent(last.name)}`, `o:${order}`, `c:${column}`]
  if (column !== 'name' && !isFolder(last)) lines.push(`a:${last[column] ?? NO_TIME}`)
  return btoa(lines.join('\n'))
}

const Cursor = z.object({
  l: text.min(1),
  o: order,
  c: z.enum(SORTED),
  a: z.union([z.iso.datetime({ precision: 3 }).regex(/^(?!0000)/), z.literal(NO_TIME)]).optional(),
})

function cursorIn(cursor: string): From {
  const { success, data } = Cursor.safeParse(linesIn(cursor))
  if (!success) throw new StorageError('InvalidParameter', 'Invalid Parameter continuation token')
  return { column: data.c, order: data.o, after: { name: data.l, time: data.a } }
}

function linesIn(cursor: string): Record<string, string> {
  try {
    const lines = atob(cursor).split('\n')
    return Object.fromEntries(lines.map((line) => [line.slice(0, 1), decodeURIComponent(line.slice(2))]))
  } catch {
    return {}
  }
}
