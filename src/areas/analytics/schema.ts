import * as z from 'zod'
import { Text } from '../../http/values.ts'

const SQL_LENGTH_MAX = 10_000

const Moment = z.iso.datetime({ offset: true }).optional()

export const LogsQuery = z.object({
  sql: Text.max(SQL_LENGTH_MAX).optional().meta({ description: 'One SELECT; without it the edge logs are read' }),
  iso_timestamp_start: Moment.meta({ description: 'A minute before the end where it is not given' }),
  iso_timestamp_end: Moment.meta({ description: 'Now where it is not given; at most 24 hours after the start' }),
})

/** `error` tells what is wrong with the question; the result is empty then. */
const answer = <T extends z.ZodType>(row: T) => z.object({ result: z.array(row), error: z.string().optional() })

export const AnalyticsAnswer = answer(z.record(z.string(), z.unknown())).meta({ id: 'AnalyticsResponse' })
