import { parseArgs } from 'node:util'
import { errorMessage, StartError } from '../start-error.ts'
import { readPassphrase } from './keys.ts'
import { type BackupPlace, openPlace } from './place.ts'

const OPTIONS = {
  'key-file': { type: 'string' },
  'plaintext-keys': { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const

/** One run of `backup` or `restore`. */
export interface Command {
  args: readonly string[]
  env: NodeJS.ProcessEnv
  print(line: string): void
}

interface Given {
  text: string
  place: BackupPlace
  passphrase: string | undefined
  isPlaintext: boolean
}

/**
 * Reads the arguments of `backup` or `restore`. `takesPlaintext` allows --plaintext-keys, which only `backup` has. Prints the usage
 * and returns undefined for `--help`.
 */
export async function readArguments(
  command: 'backup' | 'restore',
  { takesPlaintext, args, env, print }: Command & { takesPlaintext: boolean },
): Promise<Given | undefined> {
  const flags = takesPlaintext ? '[--key-file <file> | --plaintext-keys]' : '[--key-file <file>]'
  const usage = `npm run ${command} -- <folder or s3://bucket/prefix> ${flags}`
  const { positionals, values } = parse(usage, args)
  if (values.help) {
    print(`Usage: ${usage}`)
    return undefined
  }
  const [text, ...more] = positionals
  const isPlaintext = values['plaintext-keys'] === true
  const keyFile = values['key-file']
  if (!text || more.length > 0 || (isPlaintext && (!takesPlaintext || keyFile !== undefined)))
    throw new StartError(`Usage: ${usage}`)
  const passphrase = isPlaintext ? undefined : await readPassphrase(keyFile, env)
  return { text, place: openPlace(text, env), passphrase, isPlaintext }
}

function parse(usage: string, args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], allowPositionals: true, options: OPTIONS })
  } catch (error) {
    throw new StartError(`${errorMessage(error)}\n\nUsage: ${usage}`)
  }
}
