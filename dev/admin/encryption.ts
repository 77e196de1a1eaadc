import { setTimeout as delay } from 'node:timers/promises'
import { currentKeyId, keyIdOf, seal, unseal } from '../../src/platform/secrets/seal.ts'
import type { ControlDb } from '../seed.ts'
import { errorMessage, StartError } from '../start-error.ts'
import { targetEncryptionKey } from '../target.ts'
import { change } from './change.ts'
import type { Command, Report } from './command.ts'
import { pagesOf, type Rewritten, SEALED, type SealedColumn, type SealedRow, sumOf, writeBack } from './sealed.ts'

export const encryptionCommands: Record<string, Command> = {
  'encryption status': {
    summary: 'Count sealed values by encryption key.',
    args: [],
    run: status,
  },
  'encryption reseal': {
    summary: 'Seal all values with the first key of ENCRYPTION_KEY.',
    args: [],
    run: reseal,
  },
}

/** How many values each key of ENCRYPTION_KEY has sealed, by the column that they are in. */
async function status(db: ControlDb): Promise<string> {
  const lines: string[] = []
  for (const column of SEALED) {
    const counts = new Map<string, number>()
    for await (const rows of pagesOf(db, column))
      for (const [, sealed] of rows.flatMap(column.sealed))
        counts.set(keyIdOf(sealed), (counts.get(keyIdOf(sealed)) ?? 0) + 1)
    const told = Array.from(counts, ([key, count]) => `${key} ${count}`).sort()
    lines.push(`${`${column.table}.${column.column}`.padEnd(40)}${told.join('  ') || 'none'}`)
  }
  return lines.join('\n')
}

interface Outcome {
  resealed: number
  /** Changed by somebody else meanwhile, perhaps with the former key. */
  missed: number
  failures: string[]
}

/** Rows that somebody else has locked or changed are tried again. */
const PASSES_MAX = 5
const PAUSE_MS = 2_000
/** Of what could not be opened. */
const TOLD_MAX = 100

async function reseal(db: ControlDb): Promise<Report> {
  const setting = await targetEncryptionKey(process.env)
  const key = currentId(setting)
  let resealed = 0
  let last: Outcome = { resealed: 0, missed: 0, failures: [] }
  for (let pass = 1; pass === 1 || (last.missed > 0 && pass <= PASSES_MAX); pass++) {
    if (pass > 1) await delay(PAUSE_MS)
    last = await resealAll(db, setting)
    resealed += last.resealed
  }
  const { missed, failures } = last
  await change(db, ({ trace }) =>
    trace({ action: 'encryption.reseal', detail: { key, values: resealed, failures: failures.length } }),
  )
  const told =
    failures.length > TOLD_MAX ? [...failures.slice(0, TOLD_MAX), `and ${failures.length - TOLD_MAX} more`] : failures
  const left = missed > 0 ? [`changed meanwhile, run this again: ${missed}`] : []
  return {
    text: [`values sealed with ${key}: ${resealed}`, ...left, ...told].join('\n'),
    exitCode: missed + failures.length > 0 ? 1 : 0,
  }
}

function currentId(setting: string): string {
  try {
    return currentKeyId(setting)
  } catch (error) {
    throw new StartError(errorMessage(error))
  }
}

async function resealAll(db: ControlDb, setting: string): Promise<Outcome> {
  const outcome: Outcome = { resealed: 0, missed: 0, failures: [] }
  for (const column of SEALED) {
    for await (const rows of pagesOf(db, column)) {
      const tried = await Promise.all(rows.map((row) => again(column, row, setting, outcome.failures)))
      const changed = tried.filter((one) => one !== undefined)
      const written = await writeBack(db, column, changed)
      outcome.resealed += written
      outcome.missed += sumOf(changed) - written
    }
  }
  return outcome
}

/** Undefined where nothing is to be changed. What cannot be opened stays, beside what could be. */
async function again(
  column: SealedColumn,
  row: SealedRow,
  setting: string,
  failures: string[],
): Promise<Rewritten | undefined> {
  let after = row.value
  let count = 0
  for (const [place, sealed] of column.sealed(row)) {
    if (keyIdOf(sealed) === currentKeyId(setting)) continue
    try {
      const text = await unseal(setting, sealed, place)
      // A sealed text is random and free of what JSON escapes.
      after = after.replace(sealed, await seal(setting, text, place))
      count++
    } catch (error) {
      failures.push(`${place}: ${errorMessage(error) || 'no key opens it'}`)
    }
  }
  return count === 0 ? undefined : { row, after, count }
}
