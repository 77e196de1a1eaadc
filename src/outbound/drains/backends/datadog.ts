import * as z from 'zod'
import { backend } from '../backend.ts'
import { Credential, oneOf } from '../fields.ts'

const SITES = {
  US1: 'datadoghq.com',
  US3: 'us3.datadoghq.com',
  US5: 'us5.datadoghq.com',
  EU: 'datadoghq.eu',
  AP1: 'ap1.datadoghq.com',
  AP2: 'ap2.datadoghq.com',
  'US1-FED': 'ddog-gov.com',
}
type Region = keyof typeof SITES

const Config = z.strictObject({ api_key: Credential, region: oneOf(Object.keys(SITES) as [Region, ...Region[]]) })

const intakeOf = ({ region }: z.output<typeof Config>) => `https://http-intake.logs.${SITES[region]}/api/v2/logs`

/** Implements Datadog's "Send logs", which accepts 1,000 rows and 5 MB per request. */
export const datadog = backend<typeof Config>({
  config: Config,
  secrets: ['api_key'],
  target: (config) => ({ field: 'region', url: intakeOf(config) }),
  send: (config, { rows, projectRef }, transport) =>
    transport.post({
      url: intakeOf(config),
      headers: { 'dd-api-key': config.api_key, 'content-type': 'application/json' },
      body: JSON.stringify(
        rows.map(({ source, severity_text, event_message, ...row }) => ({
          ...{ ddsource: 'pilothouse', ddtags: `project:${projectRef}`, hostname: projectRef, service: source },
          ...{ status: severity_text.toLowerCase(), message: event_message, ...row },
        })),
      ),
      gzip: true,
    }),
})
