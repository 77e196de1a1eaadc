import { checkDestination, checkSocket, type DestinationRules, type Verdict } from '../../platform/net/destination.ts'
import type { Target } from './backend.ts'

/** Whether logs may be sent there now. */
export const checkTarget = (target: Target, rules: DestinationRules): Promise<Verdict> =>
  'url' in target ? checkDestination(target.url, rules) : checkSocket(target.host, target.port, rules)
