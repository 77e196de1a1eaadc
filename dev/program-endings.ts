/** Sent by the kernel out of memory, by an operator or by a shutdown; a crash has other signals or none. */
const KILLS: readonly (NodeJS.Signals | null)[] = ['SIGKILL', 'SIGTERM', 'SIGINT', 'SIGHUP']

export const endingByExit = (signal: NodeJS.Signals | null) => (KILLS.includes(signal) ? 'killed' : 'crash')
