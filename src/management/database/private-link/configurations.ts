import type { Config } from '../../../config.ts'

interface Database {
  identifier: string
  isPrimary: boolean
}

/** Whether this installation shares databases at all. */
export const hasPrivateLink = ({ PRIVATE_LINK_RESOURCE_CONFIGURATIONS: list }: Config): boolean => list !== undefined

/** The ARN of the VPC Lattice resource configuration that leads to a database. Of projects on one cluster it may be the same. */
export function configurationOf(config: Config, { identifier, isPrimary }: Database): string | undefined {
  const entries = (config.PRIVATE_LINK_RESOURCE_CONFIGURATIONS ?? '').split(',').map((entry) => entry.split('='))
  const [, own] = entries.find(([name, arn]) => arn && name === identifier) ?? []
  const [cluster] = entries.find(([, arn]) => arn === undefined) ?? []
  return own ?? (isPrimary && config.ENGINE !== 'neon' ? cluster || undefined : undefined)
}

/** The parts of such an ARN that are needed by themselves. */
export function partsOf(arn: string) {
  const [, partition = '', , region = '', , resource = ''] = arn.split(':')
  return { partition, region, id: resource.slice(resource.indexOf('/') + 1) }
}
