import { setTimeout as delay } from 'node:timers/promises'
import { currentKeyId, keyIdOf, keyIdsOf, seal, unseal } from '../../src/platform/secrets/seal.ts'
import { readKeyIds } from '../encryption-key.ts'
import type { ControlDb } from '../seed.ts'
import { errorMessage, StartError } from '../start-error.ts'
import { targetEncryptionKey } from '../target.ts'
import { change } from './change.ts'
import type { Command, Report } from './command.ts'
import {
  type Rewritten,
  readPages,
  readSealed,
  SEALED,
  type SealedColumn,
  type SealedRow,
  sumOf,
  writeBack,
} from './sealed-columns.ts'

export const encryptionCommands: Record<string, Command> = {
  'encryption status': {
    summary: 'Count the stored secrets by the encryption key that sealed them.',
    args: [],
    run: status,
  },
  'encryption reseal': {
    summary: 'Seal all stored secrets again, with the first key of ENCRYPTION_KEY.',
    args: [],
    run: reseal,
  },
}

/** Counts the values that each key has sealed, by column. The exit code is 1 if ENCRYPTION_KEY lacks one of the keys. */
async function status(db: ControlDb): Promise<Report> {
  const held = readSetting(keyIdsOf, await targetEncryptionKey(process.env))
  const lines: string[] = []
  const lacking = new Set<string>()
  for (const column of SEALED) {
    const counts = new Map<string, number>()
    for await (const [, sealed] of readSealed(db, column))
      counts.set(keyIdOf(sealed), (counts.get(keyIdOf(sealed)) ?? 0) + 1)
    for (const id of counts.keys()) if (!held.includes(id)) lacking.add(id)
    const counted = Array.from(counts, ([key, count]) => `${key} ${count}`).sort()
    lines.push(`${`${column.table}.${column.column}`.padEnd(40)}${counted.join('  ') || 'none'}`)
  }
  lines.push(...Array.from(lacking, (id) => `ENCRYPTION_KEY lacks the key ${id}: its values cannot be opened`))
  return { text: lines.join('\n'), exitCode: lacking.size > 0 ? 1 : 0 }
}

/** Describes why ENCRYPTION_KEY does not open all secrets; undefined if it does. Each key is tried on one of its secrets. */
export async function findUnopened(db: ControlDb, setting: string): Promise<string | undefined> {
  const held = readKeyIds(setting)
  if (!Array.isArray(held)) return held
  const tried = new Set<string>()
  for (const column of SEALED) {
    for await (const [associatedData, sealed] of readSealed(db, column)) {
      const id = keyIdOf(sealed)
      if (!held.includes(id)) return `ENCRYPTION_KEY lacks the key ${id}, which sealed ${associatedData}`
      const isOpen = tried.has(id) || (await opens(setting, sealed, associatedData))
      if (!isOpen) return `the key ${id} of ENCRYPTION_KEY does not open ${associatedData}`
      tried.add(id)
    }
  }
  return undefined
}

const opens = (...secret: Parameters<typeof unseal>): Promise<boolean> =>
  unseal(...secret).then(
    () => true,
    () => false,
  )

interface Outcome {
  resealed: number
  /** Number of values that were changed or locked meanwhile, perhaps with the former key. */
  missed: number
  failures: string[]
}

/** Rows that were locked or changed meanwhile are tried again, in this many passes. */
const PASSES_MAX = 5
const PAUSE_MS = 2_000
/** Limit for the values listed that could not be opened. */
const FAILURES_SHOWN_MAX = 100

async function reseal(db: ControlDb): Promise<Report> {
  const setting = await targetEncryptionKey(process.env)
  const key = readSetting(currentKeyId, setting)
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
  const shown =
    failures.length > FAILURES_SHOWN_MAX
      ? [...failures.slice(0, FAILURES_SHOWN_MAX), `and ${failures.length - FAILURES_SHOWN_MAX} more`]
      : failures
  const left = missed > 0 ? [`changed meanwhile, run this again: ${missed}`] : []
  return {
    text: [`values sealed with ${key}: ${resealed}`, ...left, ...shown].join('\n'),
    exitCode: missed + failures.length > 0 ? 1 : 0,
  }
}

function readSetting<Value>(read: (setting: string) => Value, setting: string): Value {
  try {
    return read(setting)
  } catch (error) {
    throw new StartError(errorMessage(error))
  }
}

async function resealAll(db: ControlDb, setting: string): Promise<Outcome> {
  const outcome: Outcome = { resealed: 0, missed: 0, failures: [] }
  for (const column of SEALED) {
    for await (const rows of readPages(db, column)) {
      const tried = await Promise.all(rows.map((row) => resealRow(column, row, setting, outcome.failures)))
      const changed = tried.filter((one) => one !== undefined)
      const written = await writeBack(db, column, changed)
      outcome.resealed += written
      outcome.missed += sumOf(changed) - written
    }
  }
  return outcome
}

/** Reseals a row; returns undefined if nothing changes. Texts that cannot be opened stay as they are and are added to `failures`. */
async function resealRow(
  column: SealedColumn,
  row: SealedRow,
  setting: string,
  failures: string[],
): Promise<Rewritten | undefined> {
  let after = row.value
  let count = 0
  for (const [associatedData, sealed] of column.sealed(row)) {
    if (keyIdOf(sealed) === currentKeyId(setting)) continue
    try {
      const text = await unseal(setting, sealed, associatedData)
      // A sealed text is unique, and contains no character that JSON escapes.
      after = after.replace(sealed, await seal(setting, text, associatedData))
      count++
    } catch (error) {
      failures.push(`${associatedData}: ${errorMessage(error) || 'no key opens it'}`)
    }
  }
  return count === 0 ? undefined : { row, after, count }
}
