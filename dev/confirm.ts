import { createInterface } from 'node:readline/promises'
import { StartError } from './start-error.ts'

interface Question {
  /** The consequence, as a verb and its object: `deletes all data in /x`. */
  what: string
  /** The command line, for the message. */
  command: string
  isConfirmed: boolean
}

/** Asks at the terminal. Throws if the answer is not `yes`, or if there is no terminal to ask at. */
export async function confirm({ what, command, isConfirmed }: Question, ask = askAtTerminal): Promise<void> {
  if (isConfirmed) return
  const answer = await ask(`${command} ${what}. Type "yes" to continue: `)
  if (answer === undefined) throw new StartError(`${command} ${what}: add --yes to confirm.`)
  if (answer.trim() !== 'yes') throw new StartError('Nothing was changed.')
}

/** Returns undefined if there is no terminal. */
async function askAtTerminal(question: string): Promise<string | undefined> {
  if (!process.stdin.isTTY || !process.stdout.isTTY) return undefined
  // `terminal: false` keeps Ctrl-C a signal.
  const terminal = createInterface({ input: process.stdin, output: process.stdout, terminal: false })
  try {
    return await terminal.question(question)
  } finally {
    terminal.close()
  }
}
