import * as z from 'zod'
import { Name, Text, wholeNumber } from '../../../platform/http/common-values.ts'
import { PageLinks, withOneCursor } from '../../../platform/http/pagination.ts'
import { withIds } from './cells.ts'

const ROW_LIMIT_DEFAULT = 100
const CELLS_MAX = 1_000
const CONTENT_LENGTH_MAX = 262_144

const positive = z.int().positive()

const Chart = z
  .object({
    type: z.enum(['bar', 'line']),
    x_column: Text,
    y_series: z.array(z.object({ column: Text })).max(3),
    scale: z.enum(['linear', 'log']),
    cumulative: z.boolean(),
    show_labels: z.boolean(),
  })
  .meta({ id: 'NotebookChart' })

const TimeRange = z
  .discriminatedUnion('type', [
    z.object({ type: z.literal('absolute'), start: Text, end: Text }),
    z.object({
      type: z.literal('relative'),
      unit: z.enum(['minute', 'hour', 'day', 'week', 'month', 'year']),
      amount: positive,
    }),
  ])
  .meta({ id: 'NotebookTimeRange' })

const display = { title: Text.optional(), view: z.enum(['table', 'chart']).optional(), chart: Chart.optional() }

const markdown = { type: z.literal('markdown'), text: Text }
const database = { type: z.literal('database'), sql: Text, database_identifier: Text.optional(), ...display }
const log = { type: z.literal('log'), sql: Text, time_range: TimeRange, ...display }

const Cell = z
  .discriminatedUnion('type', [
    z.object({ id: z.string(), ...markdown }),
    z.object({ id: z.string(), ...database, row_limit: positive }),
    z.object({ id: z.string(), ...log }),
  ])
  .meta({ id: 'NotebookCell' })

const id = Text.min(1)
  .optional()
  .meta({ description: 'Generated if omitted; in an update, the id of an existing cell' })

const WriteCell = z
  .discriminatedUnion('type', [
    z.object({ id, ...markdown }),
    z.object({ id, ...database, row_limit: positive.default(ROW_LIMIT_DEFAULT) }),
    z.object({ id, ...log }),
  ])
  .meta({ id: 'WriteNotebookCell' })

const Content = z.object({
  cells: z
    .array(WriteCell)
    .max(CELLS_MAX)
    .refine((cells) => JSON.stringify(withIds(cells)).length <= CONTENT_LENGTH_MAX, {
      message: `must be at most ${CONTENT_LENGTH_MAX} characters of JSON`,
    }),
})

const writable = {
  name: Name.max(255),
  description: Text.max(10_000).optional(),
  favorite: z.boolean().optional().meta({ description: 'Whether the caller marked it as a favorite' }),
  content: Content,
}

const bodyOf = <T extends z.ZodType>(attributes: T) =>
  z.object({ data: z.object({ type: z.literal('notebook'), attributes }) })

export const CreateNotebook = bodyOf(z.object(writable)).meta({ id: 'CreateNotebook' })
export const UpdateNotebook = bodyOf(z.object(writable).partial()).meta({ id: 'UpdateNotebook' })

const Person = z.object({ id: z.int(), username: z.string() }).nullable()

const listed = {
  name: z.string(),
  description: z.string().nullable(),
  favorite: z.boolean().meta({ description: 'Whether the caller marked it as a favorite' }),
  inserted_at: z.iso.datetime(),
  updated_at: z.iso.datetime(),
  owner: Person,
  updated_by: Person,
}

const resourceOf = <T extends z.ZodType>(attributes: T) =>
  z.object({ type: z.literal('notebook'), id: z.uuid(), attributes })

export const Notebook = z
  .object({
    data: resourceOf(z.object({ ...listed, content: z.object({ schema_version: z.number(), cells: z.array(Cell) }) })),
  })
  .meta({ id: 'Notebook' })

export const NotebookList = z
  .object({
    data: z.array(resourceOf(z.object(listed))),
    links: PageLinks,
  })
  .meta({ id: 'NotebookList' })

const Cursor = z.string().min(1).max(8_192).optional()

export const NotebookListQuery = withOneCursor(
  z.object({
    'page[size]': wholeNumber(1, 100).default(20),
    'page[after]': Cursor,
    'page[before]': Cursor,
    'filter[name]': Text.min(1).max(255).optional().meta({ description: 'Part of the name, case-insensitive' }),
    sort: z.enum(['name', '-name', 'inserted_at', '-inserted_at']).default('-inserted_at'),
  }),
)
