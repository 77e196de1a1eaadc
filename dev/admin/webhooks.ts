import type { Command } from './command.ts'
import { findOrganization } from './find.ts'
import { readReplay, replay } from './webhook-replay.ts'
import { webhookStatus } from './webhook-status.ts'

export const webhookCommands: Record<string, Command> = {
  'webhooks status': {
    summary: 'Show pending deliveries and recent attempts.',
    args: [],
    options: '[--organization slug]',
    run: async (db, _args, { organization: slug }) => {
      const organization = slug === undefined ? undefined : await findOrganization(db, slug)
      return webhookStatus(db, organization?.id)
    },
  },
  'webhooks replay': {
    summary: 'Send past events to an endpoint again.',
    args: ['endpoint id'],
    options: '--since time [--until time] [--status failure|skipped|success|all] [--dry-run]',
    run: (db, [endpointId = ''], options) => replay(db, readReplay(endpointId, options, new Date())),
  },
}
