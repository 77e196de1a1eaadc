import * as z from 'zod'
import { asReader, type Caller, type Storage } from './database.ts'
import { CursorOrder, type ListObjects, type ListPage, PAGE_MAX, type PageEntry, StorableText } from './schema.ts'
import * as lists from './statements/lists.ts'
import { asJson } from './statements/values.ts'
import { StorageError } from './storage-error.ts'

const LISTED_MAX = 1_500

/** Whether only older versions or delete markers are wanted, which do not exist. */
const hasNoMatches = (body: Pick<z.output<typeof ListPage>, 'noncurrentVersions' | 'deleteMarkers'>): boolean =>
  body.noncurrentVersions === 'only' || body.deleteMarkers === 'only'

/** Lists the files and folders directly under a folder. There may be many, so the JSON text of Postgres is returned unparsed. */
export async function list(storage: Storage, caller: Caller, bucketId: string, body: z.output<typeof ListObjects>) {
  const { prefix, limit, offset, search, sortBy, exactMatch } = body
  if (hasNoMatches(body)) return '[]'
  const statement = exactMatch
    ? lists.exactFile({ bucketId, name: prefix }, offset)
    : lists.listObjects({
        ...sortBy,
        bucketId,
        offset,
        search,
        prefix: prefix === '' || prefix.endsWith('/') ? prefix : `${prefix}/`,
        limit: Math.min(limit, LISTED_MAX),
      })
  const [[found] = []] = await asReader(storage, caller, [asJson(statement)])
  return String(found?.json)
}

/** Returns a page of the objects whose names begin with a prefix, and the cursor of the next page. */
export async function listPage(storage: Storage, caller: Caller, bucketId: string, body: z.output<typeof ListPage>) {
  const { prefix, limit, cursor, with_delimiter: delimited, sortBy, exactMatch } = body
  const from = cursor ? cursorIn(cursor) : { ...sortBy, after: undefined }
  const size = Math.min(limit, PAGE_MAX)
  if (hasNoMatches(body)) return { hasNext: false, folders: [], objects: [] }
  const statement = exactMatch
    ? lists.exactFile({ bucketId, name: prefix })
    : lists.listPage({ bucketId, prefix, delimited, limit: size + 1, ...from })
  const [[found] = []] = await asReader(storage, caller, [asJson(statement)])
  const rows = JSON.parse(String(found?.json)) as PageEntry[]
  const entries = rows.slice(0, size)
  const last = entries.at(-1)
  const hasNext = rows.length > size && last !== undefined
  return {
    hasNext,
    ...(hasNext && { nextCursor: cursorOf(last, from), nextCursorKey: last.name }),
    folders: entries.filter(isFolder).map((entry) => ({ key: keyOf(entry), ...entry })),
    objects: entries
      .filter((entry) => !isFolder(entry))
      .map((entry) => ({ ...(delimited && { key: entry.name }), ...entry })),
  }
}

const isFolder = ({ id }: PageEntry) => id === null
const keyOf = ({ name }: PageEntry) => name.replace(/\/$/, '')

/** The project's SQL can set a time to null; such a file sorts as the oldest. */
const NO_TIME = '-infinity'

type From = Pick<lists.Page, 'column' | 'order' | 'after'>

function cursorOf(last: PageEntry, { column, order }: From): string {
  // A name that SQL wrote may contain line breaks, so it is encoded.
  const lines = [`l:${encodeURIComponent(last.name)}`, `o:${order}`, `c:${column}`]
  if (column !== 'name' && !isFolder(last)) lines.push(`a:${last[column] ?? NO_TIME}`)
  return btoa(lines.join('\n'))
}

const Cursor = z.object({
  l: StorableText.min(1),
  ...CursorOrder,
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
