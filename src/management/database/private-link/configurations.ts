import type { Config } from '../../../config.ts'

/** Whether private link is configured on this installation. */
export const hasPrivateLink = ({ PRIVATE_LINK_RESOURCE_CONFIGURATIONS: list }: Config): boolean => list !== undefined

/** Returns the ARN of the VPC Lattice resource configuration for a database. The one without a name is for the primary databases on the local host. */
export function configurationOf(config: Config, identifier: string, isLocalPrimary: boolean): string | undefined {
  const entries = (config.PRIVATE_LINK_RESOURCE_CONFIGURATIONS ?? '').split(',').map((entry) => entry.split('='))
  const [, own] = entries.find(([name, arn]) => arn && name === identifier) ?? []
  const [local] = entries.find(([, arn]) => arn === undefined) ?? []
  return own ?? ((isLocalPrimary && local) || undefined)
}

/** Splits the ARN of a resource configuration into its partition, region and id. */
export function partsOf(arn: string) {
  const [, partition = '', , region = '', , resource = ''] = arn.split(':')
  return { partition, region, id: resource.slice(resource.indexOf('/') + 1) }
}
