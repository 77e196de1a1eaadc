import type { BackendType } from '../../../model/tables/index.ts'
import type { Backend } from '../backend.ts'
import { axiom } from './axiom.ts'
import { datadog } from './datadog.ts'
import { last9 } from './last9.ts'
import { loki } from './loki.ts'
import { otlp } from './otlp.ts'
import { s3 } from './s3.ts'
import { sentry } from './sentry.ts'
import { syslog } from './syslog.ts'
import { webhook } from './webhook.ts'

/** The supported backends. The published API has no config fields for the others. */
export const BACKENDS: Partial<Record<BackendType, Backend>> = {
  webhook,
  datadog,
  loki,
  sentry,
  axiom,
  otlp,
  last9,
  s3,
  syslog,
}
