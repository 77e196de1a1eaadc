import type { Config } from '../../../config.ts'

interface Database {
  identifier: string
  isPrimary: boolean
}

/** Whether private link is configured on this installation. */
export const hasPrivateLink = ({ PRIVATE_LINK_RESOURCE_CONFIGURATIONS: list }: Config): boolean => list !== undefined

/** Returns the ARN of the VPC Lattice resource configuration for a database. Projects of one cluster may share it. */
export function configurationOf(config: Config, { identifier, isPrimary }: Database): string | undefined {
  const entries = (config.PRIVATE_LINK_RESOURCE_CONFIGURATIONS ?? '').split(',').map((entry) => entry.split('='))
  const [, own] = entries.find(([name, arn]) => arn && name === identifier) ?? []
  const [cluster] = entries.find(([, arn]) => arn === undefined) ?? []
  return own ?? (isPrimary && config.ENGINE !== 'neon' ? cluster || undefined : undefined)
}

/** Splits the ARN of a resource configuration into its partition, region and id. */
export function partsOf(arn: string) {
  const [, partition = '', , region = '', , resource = ''] = arn.split(':')
  return { partition, region, id: resource.slice(resource.indexOf('/') + 1) }
}
