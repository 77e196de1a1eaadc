import { checkDestination, checkSocket, type DestinationRules, type Verdict } from '../../platform/net/destination.ts'
import type { Target } from './backend.ts'

/** Checks whether logs may be sent to the destination now. */
export const checkTarget = (target: Target, rules: DestinationRules): Promise<Verdict> =>
  'url' in target ? checkDestination(target.url, rules) : checkSocket(target.host, target.port, rules)
